"""AnomalyDINO (Damm et al., 2025): normal matching with rotations, on the patches that show the object.

The first principal component of the patches of a picture tells the object from its background. Patches of the
background score 0, unless the component does not show the object in the references.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ...normal_variation_eraser import symmetric_eigen
from .context import Context, Query
from .normal_matching import rotated_normal_matching
from .registry import method

THRESHOLD = 10.0  # of the first component, in the units of DINOv2's features
BORDER = 0.2  # of each side, outside the centre of a picture
CENTRE_SHARE = 0.35  # of the centre, which the object covers at least
KERNEL = 3  # patches of a row, as in the authors' code, by which the object is widened and its holes are closed


@method(in_poses=True)
def anomaly_dino(query: Query) -> Tensor:
    """Normal matching with eight rotations of every normal reference, on the object alone (AnomalyDINO)."""
    scores = rotated_normal_matching(query)
    if not query.context.once(shows_object):
        return scores
    return scores * object_mask(query.patches.view(*query.grid, -1)).flatten()


def shows_object(context: Context) -> bool:
    """Whether masks are to be used: in every normal reference the object fills the centre and spares the border.

    Differs from the paper, where a person looks at the mask of a reference and decides for the category, because a
    table must not depend on who looks.
    """
    if context.normal is None:
        return False
    masks = torch.stack([object_mask(picture) for picture in context.normal])
    middle = centre(masks)
    outside = (masks.sum((1, 2)) - middle.sum((1, 2))) / (masks[0].numel() - middle[0].numel())
    inside = middle.float().mean((1, 2))
    return bool(((inside > CENTRE_SHARE) & (outside < CENTRE_SHARE)).all())


def object_mask(features: Tensor) -> Tensor:
    """The patches (h, w), bool, of features (h, w, C) that show the object."""
    patches = features.flatten(0, 1)
    centred = patches - patches.mean(0)
    _, vectors = symmetric_eigen((centred.T @ centred)[None])  # ascending
    component = (centred @ vectors[0, :, -1]).view(features.shape[:2])
    # An eigenvector has no sign of its own; the authors take the sign that PCA gives, unless the centre would be lost.
    # Here it is the one that covers more of the centre, so that the digits of a library do not decide.
    sides = [component > THRESHOLD, -component > THRESHOLD]
    chosen = max(sides, key=lambda mask: int(centre(mask).sum()))
    widened = _largest(chosen.flatten()[None].float())
    closed = -_largest(-_largest(widened))  # widened, then narrowed
    return (closed > 0).view(features.shape[:2])


def centre(masks: Tensor) -> Tensor:
    """The centre (..., h', w') of masks (..., h, w)."""
    (top, bottom), (left, right) = ((int(side * BORDER), int(side * (1 - BORDER))) for side in masks.shape[-2:])
    return masks[..., top:bottom, left:right]


def _largest(rows: Tensor) -> Tensor:
    """The largest value around each place of rows (n, N)."""
    return F.max_pool1d(rows, KERNEL, stride=1, padding=KERNEL // 2)
