"""What a person has painted over a picture, as a mask. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

PAINTED, BOX = "What I painted", "A box around what I painted"
WAYS = (PAINTED, BOX)


def painted_mask(layers: Sequence[np.ndarray], size: tuple[int, int], way: str) -> np.ndarray | None:
    """The mask that somebody painted: bool of `size` (h, w), or None if nothing is painted.

    Args:
        layers: arrays (H, W, 4) of what is painted, with alpha; of any size.
        size: height and width of the picture below.
        way: `PAINTED`, or `BOX` for the box around it.
    """
    if way not in WAYS:
        raise ValueError(f"expected one of {WAYS}, got {way!r}")
    mask = np.zeros(size, bool)
    for layer in layers:
        painted = Image.fromarray(layer[..., 3]).resize(size[::-1], Image.Resampling.NEAREST)
        mask |= np.asarray(painted) > 0
    if not mask.any():
        return None
    if way == BOX:
        rows, columns = mask.nonzero()
        mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = True
    return mask


def layers_of(drawing: Mapping[str, Any] | None) -> list[np.ndarray]:
    """The layers (H, W, 4) of an editor's value that have been painted on; none if it is empty."""
    return [] if drawing is None else [np.asarray(layer) for layer in drawing.get("layers") or () if layer is not None]
