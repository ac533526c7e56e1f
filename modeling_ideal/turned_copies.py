"""Normal references in other poses: what a part shows when it lies turned.

Of the turned copies of a picture only those patches are kept that are least like the picture itself, as many as it
has: the bank of normal patches doubles, whatever the number of poses.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .normal_variation_eraser import nearest_cosine, unit


def turned_copies(images: Tensor, poses: int) -> Tensor:
    """Turn images (n, 3, H, W) about their centre by every multiple of a full turn / `poses` but the first.

    Corners are filled by reflection. Returns (n, poses - 1, 3, H, W).
    """
    height, width = images.shape[-2:]
    copies = []
    for pose in range(1, poses):
        cosine, sine = (function(2 * math.pi * pose / poses) for function in (math.cos, math.sin))
        # affine_grid maps both sides to -1..1, so a rotation must account for the aspect ratio.
        matrix = images.new_tensor([[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]])
        grid = F.affine_grid(matrix.expand(len(images), -1, -1), list(images.shape), align_corners=False)
        copies.append(F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False))
    return torch.stack(copies, 1)


@torch.no_grad()
def turned_patches(images: Tensor, features: Tensor, poses: int, extract: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Select the patches (n, N, C) of the turned copies of images (n, 3, H, W) that are least like the images.

    Args:
        images: normal references.
        features: (n, h, w, C) of the images, with h x w = N patches each.
        poses: number of poses; with 1 there are no copies, and the result is None.
        extract: images (m, 3, H, W) to features (m, h, w, C).
    """
    if poses == 1:
        return None
    chosen = []
    for image, own in zip(images, features.flatten(1, 2), strict=True):  # one at a time, so that memory stays bounded
        turned = extract(turned_copies(image[None], poses)[0]).flatten(0, 2)  # ((poses - 1) * N, C)
        chosen.append(least_like(turned, own))
    return torch.stack(chosen)


def turned_in_bank(turned: Tensor, features: Tensor) -> Tensor:
    """As `turned_patches`, from features (n, poses - 1, h, w, C) of the copies and (n, h, w, C) of the images."""
    pairs = zip(turned.flatten(1, 3), features.flatten(1, 2), strict=True)
    return torch.stack([least_like(copies, own) for copies, own in pairs])


def least_like(patches: Tensor, own: Tensor) -> Tensor:
    """Select, of many patches (P, C), the (N, C) that are least like any of a picture's own patches (N, C)."""
    return patches[nearest_cosine(patches, unit(own)).topk(len(own), largest=False).indices]
