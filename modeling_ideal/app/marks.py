"""What a person has painted or drawn over a picture, as a mask. Pure functions and values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

COLOUR = "#e11d48"  # of paint and boxes
LINE = 3  # pixels of the outline of a box
CROSS = 9  # pixels of each arm of the cross at a first corner


def painted_mask(layers: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray | None:
    """The mask that somebody painted: bool of `size` (h, w), or None if nothing is painted.

    Args:
        layers: arrays (H, W, 4) of what is painted, with alpha; of any size.
        size: height and width of the picture below.
    """
    mask = np.zeros(size, bool)
    for layer in layers:
        painted = Image.fromarray(layer[..., 3]).resize(size[::-1], Image.Resampling.NEAREST)
        mask |= np.asarray(painted) > 0
    return mask if mask.any() else None


def layers_of(drawing: Mapping[str, Any] | None) -> list[np.ndarray]:
    """The layers (H, W, 4) of an editor's value that have been painted on; none if it is empty."""
    return [] if drawing is None else [np.asarray(layer) for layer in drawing.get("layers") or () if layer is not None]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes that somebody draws on a picture with two clicks each, on opposite corners.

    Args:
        picture: (h, w, 3) uint8, the picture as it is shown.
        corners: column and row of each click, in the order of the clicks.
    """

    picture: np.ndarray
    corners: tuple[tuple[int, int], ...] = ()

    def clicked(self, column: int, row: int) -> "Boxes":
        """With one more corner: the first of a box, or the one that completes it."""
        height, width = self.picture.shape[:2]
        corner = (min(max(column, 0), width - 1), min(max(row, 0), height - 1))
        return replace(self, corners=(*self.corners, corner))

    def undone(self) -> "Boxes":
        """Without the last click."""
        return replace(self, corners=self.corners[:-1])

    def boxes(self) -> list[tuple[int, int, int, int]]:
        """The complete boxes: left, top, right and bottom, with the last column and row inside."""
        pairs = zip(self.corners[::2], self.corners[1::2], strict=False)
        return [(min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])) for a, b in pairs]

    def mask(self, size: tuple[int, int]) -> np.ndarray | None:
        """What is inside of the boxes: bool of `size` (h, w), or None without boxes."""
        if len(self.corners) % 2:
            raise ValueError(
                "expected two corners for each box, got one: click the opposite corner, or undo the first"
            )
        if not self.corners:
            return None
        height, width = self.picture.shape[:2]
        mask = np.zeros(size, bool)
        for left, top, right, bottom in self.boxes():
            rows = slice(top * size[0] // height, -(-(bottom + 1) * size[0] // height))
            mask[rows, left * size[1] // width : -(-(right + 1) * size[1] // width)] = True
        return mask

    def drawn(self) -> Image.Image:
        """The picture with its boxes, and a cross where the next one begins."""
        picture = Image.fromarray(self.picture)
        pen = ImageDraw.Draw(picture)
        for width, colour in ((LINE + 2, "white"), (LINE, COLOUR)):  # the white edge shows on a red part too
            for box in self.boxes():
                pen.rectangle(box, outline=colour, width=width)
            if len(self.corners) % 2:
                column, row = self.corners[-1]
                pen.line((column - CROSS, row, column + CROSS, row), fill=colour, width=width)
                pen.line((column, row - CROSS, column, row + CROSS), fill=colour, width=width)
        return picture
