"""Regions of a picture that never count: not in its score, and not in its map. Pure functions."""

import numpy as np
import torch
from torch import Tensor

from .anomalous_patches import patch_masks
from .image_inputs import MaskInput, load_area, resize_mask

NO_WEIGHT = 1e-6  # of a pixel that no counting patch reaches


def read_ignored(
    mask: MaskInput, size: tuple[int, int], seen: tuple[int, int], patch_size: tuple[int, int], name: str
) -> tuple[Tensor, Tensor]:
    """Which pixels are ignored, and which patches count: those that no ignored pixel touches.

    Args:
        mask: any form of a mask.
        size: height and width of the picture.
        seen: the same after resizing, as the model sees it.
        patch_size: of the backbone.
        name: of the mask, for error messages.

    Returns:
        bool (H, W) of `size` and bool (h, w).
    """
    ignored = load_area(mask, size, name)
    resized = torch.from_numpy(resize_mask(ignored, seen))
    counts = ~patch_masks(resized[None, None], patch_size)[0, 0]
    if not counts.any():
        raise ValueError(f"{name}: expected some patch outside it, got none of {counts.numel()}")
    return torch.from_numpy(np.array(ignored)), counts


def counting_scores(scores: Tensor, counts: Tensor) -> Tensor:
    """Patch scores (h, w), 0 where they do not count, and their weights: (2, h, w).

    Interpolation and smoothing are linear: what becomes of the scores, divided by what becomes of the weights, is
    the map of the patches that count, into which nothing of the others has spread.
    """
    return torch.stack([scores * counts, counts.to(scores.dtype)])


def counting_map(values: Tensor, weights: Tensor, ignored: Tensor) -> Tensor:
    """The map (H, W) of what both have become at the picture's size; 0 where ignored."""
    return torch.where(ignored | (weights <= NO_WEIGHT), 0, values / weights.clamp_min(NO_WEIGHT))
