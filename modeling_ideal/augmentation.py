"""Altered copies of a reference, like other photographs of the same part: moved, rotated, relit, less sharp.

Calibration scores them if there is only one reference, and so no other to score it against.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLUR = (0.25, 0.5, 0.25)
NOISE = 0.02  # of the standard deviation of the image


class Change(NamedTuple):
    """One way to alter an image."""

    degrees: float
    right: float  # in patches; half a patch is the furthest that a shift can be from the backbone's grid
    down: float
    zoom: float
    contrast: float
    brightness: float  # in standard deviations of the image
    blurred: bool = False


# Every copy is shifted against the patch grid: light, noise and blur alone hardly change the features, and with a
# threshold from such copies every new part would be anomalous. None is mirrored: the mirror image of a part with a
# left and a right is another part.
CHANGES = (
    Change(0, 0.5, 0.35, 1.0, 1.05, 0.05),
    Change(0, -0.35, 0.5, 1.0, 0.95, -0.05, blurred=True),
    Change(5, 0.3, 0.0, 1.0, 0.95, 0.05),
    Change(-5, 0.0, -0.3, 1.0, 1.05, -0.05, blurred=True),
    Change(3, 0.0, 0.25, 1.05, 1.0, 0.1),
    Change(-3, -0.25, 0.0, 0.95, 1.0, -0.1),
)


def altered_copies(images: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Make altered copies (n * len(CHANGES), 3, H, W) of normalised images (n, 3, H, W), always the same ones.

    The copies of an image are consecutive.
    """
    noise = torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(0)).to(images)
    copies = []
    for image in images:
        spread = image.std()
        for change in CHANGES:
            copy = _move(image, change, patch_size, "bilinear")
            copy = _blur(copy) if change.blurred else copy + NOISE * spread * noise
            centre = copy.mean((-2, -1), keepdim=True)
            copies.append((copy - centre) * change.contrast + centre + change.brightness * spread)
    return torch.stack(copies)


def altered_masks(masks: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Move masks (n, H, W) as `altered_copies` moves their images: (n * len(CHANGES), H, W), bool."""
    moved = [_move((mask != 0).float()[None], change, patch_size, "nearest") for mask in masks for change in CHANGES]
    return torch.cat(moved) != 0


def _move(image: Tensor, change: Change, patch_size: tuple[int, int], mode: str) -> Tensor:
    """Rotate, shift and zoom an image (c, H, W), with reflection at the border."""
    height, width = image.shape[-2:]
    cosine, sine = (function(math.radians(change.degrees)) / change.zoom for function in (math.cos, math.sin))
    right, down = 2 * change.right * patch_size[1] / width, 2 * change.down * patch_size[0] / height
    # affine_grid maps both sides to -1..1, so a rotation must account for the aspect ratio.
    matrix = image.new_tensor([[cosine, -sine * height / width, -right], [sine * width / height, cosine, -down]])
    grid = F.affine_grid(matrix[None], [1, *image.shape], align_corners=False)
    return F.grid_sample(image[None], grid, mode=mode, padding_mode="reflection", align_corners=False)[0]


def _blur(image: Tensor) -> Tensor:
    """Blur an image (c, H, W)."""
    kernel = image.new_tensor(BLUR)
    kernel = (kernel[:, None] * kernel).expand(len(image), 1, 3, 3)
    return F.conv2d(F.pad(image[None], (1, 1, 1, 1), mode="replicate"), kernel, groups=len(image))[0]
