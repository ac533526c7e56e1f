"""Overlapping tiles over a picture, and how their maps become one map again. Pure functions.

Tiles form a grid, so that everything is told by the two sides on their own: where the tiles of a side start, and how
much each of them counts at each pixel. The weights of a side add up to one at every pixel, so their products do too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class TileGrid:
    """Tiles of one size that cover a picture.

    Args:
        size: height and width of the picture.
        tile: height and width of a tile; a side of the picture that is shorter is filled up by reflection.
        overlap: the least share of a tile that its neighbour covers too.
    """

    size: tuple[int, int]
    tile: tuple[int, int]
    overlap: float

    @cached_property
    def starts(self) -> tuple[list[int], list[int]]:
        """First row, and first column, of the tiles."""
        rows, columns = (
            tile_starts(side, tile, self.overlap) for side, tile in zip(self.size, self.tile, strict=True)
        )
        return rows, columns

    @cached_property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows of tiles, tile height) and (columns of tiles, tile width), float32: see `blending_weights`."""
        (rows, columns), (height, width) = self.starts, self.tile
        return blending_weights(rows, height), blending_weights(columns, width)

    def __len__(self) -> int:
        return len(self.starts[0]) * len(self.starts[1])

    def cut(self, picture: np.ndarray) -> Iterator[np.ndarray]:
        """The tiles (tile height, tile width, ...) of a picture (height, width, ...), row by row."""
        missing = [(0, max(0, tile - side)) for side, tile in zip(self.size, self.tile, strict=True)]
        if any(after for _, after in missing):
            picture = np.pad(picture, missing + [(0, 0)] * (picture.ndim - 2), mode="symmetric")
        for top in self.starts[0]:
            for left in self.starts[1]:
                yield picture[top : top + self.tile[0], left : left + self.tile[1]]

    def add(self, merged: np.ndarray, index: int, tile_map: np.ndarray) -> None:
        """Add the map (tile height, tile width) of tile `index` to the map (height, width) of the picture."""
        row, column = divmod(index, len(self.starts[1]))
        top, left = self.starts[0][row], self.starts[1][column]
        weight = self.weights[0][row][:, None] * self.weights[1][column]
        part = merged[top : top + self.tile[0], left : left + self.tile[1]]
        part += (tile_map * weight)[: part.shape[0], : part.shape[1]]


def tile_starts(side: int, tile: int, overlap: float) -> list[int]:
    """Where the fewest tiles start that cover a side with at least this overlap, evenly spread."""
    if side <= tile:
        return [0]
    step = max(1, math.floor(tile * (1 - overlap)))
    count = math.ceil((side - tile) / step) + 1
    return [round(index * (side - tile) / (count - 1)) for index in range(count)]


def blending_weights(starts: list[int], tile: int) -> np.ndarray:
    """(tiles, tile) float32: how much each tile of a side counts at its pixels, adding up to one at every pixel.

    Each fades out towards its own border, where a neighbour knows more of the surroundings.
    """
    window = np.sin(np.pi * (np.arange(tile) + 0.5) / tile) ** 2
    total = np.zeros(starts[-1] + tile)
    for start in starts:
        total[start : start + tile] += window
    return np.stack([window / total[start : start + tile] for start in starts]).astype(np.float32)
