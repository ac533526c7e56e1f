"""The references as rivals take them, and residuals, plain or denoised by the Normal Variation Eraser."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from ...anomalous_patches import estimate_mask
from ...normal_variation_eraser import erase_normal_variation, nearest_normals, unit

# The paper's settings of the eraser, also where it is a plug-in of another method (appendix D).
erase = partial(
    erase_normal_variation, num_neighbors=12, num_components=4, erase_strength=0.8, residual_anchor="nearest"
)


@dataclass(frozen=True)
class ReferenceFeatures:
    """The features of one reference set. h x w patches, C channels.

    Args:
        normals: (Q, C) normal patches; without normal references, the unmarked ones of the abnormal references.
        abnormal: (L2, h, w, C) or None.
        marked: (L2, h, w) bool, the anomalous patches; None if there are no abnormal references.
        has_normal: whether there are normal references.
    """

    normals: Tensor
    abnormal: Tensor | None
    marked: Tensor | None
    has_normal: bool


def gather_references(normal: Tensor | None, abnormal: Tensor | None, marked: Tensor | None) -> ReferenceFeatures:
    """From normal references (L1, h, w, C), abnormal ones (L2, h, w, C) and their marks (L2, h, w), each or None.

    Without marks, the patches that deviate most count as anomalous, as for IDEAL.
    """
    if normal is None and abnormal is None:
        raise ValueError("expected normal or abnormal references, got neither")
    normals = None if normal is None else normal.flatten(0, 2)
    if abnormal is not None and marked is None:
        marked = estimate_mask(normals, abnormal, erase)
    if normals is None and abnormal is not None and marked is not None:
        normals = abnormal[~marked]
    if normals is None or not len(normals):
        raise ValueError("expected some patch outside the masks to serve as normal, got masks over all patches")
    return ReferenceFeatures(normals, abnormal, marked, has_normal=normal is not None)


def residuals(targets: Tensor, normals: Tensor, denoise: bool) -> Tensor:
    """Patches (P, C) less the nearest of the normal ones (Q, C) by cosine, denoised (Eq. 4) or not (Eq. 1): (P, C)."""
    if denoise:
        return erase(targets, normals, unit(normals)).denoised
    _, nearest = nearest_normals(unit(targets), unit(normals), 1)
    return targets - normals[nearest[:, 0]]
