"""Overlapping tiles of an image, and the merging of their maps into one. Pure functions.

Tiles form a grid, so rows and columns can be treated separately: where the tiles of a side start, and the weight of
each at every pixel. The weights of each side add up to one at every pixel, and so do their products.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class TileGrid:
    """Tiles of one size that cover an image.

    Args:
        size: height and width of the image.
        tile: height and width of a tile; an image with a shorter side is padded by reflection.
        overlap: minimum overlap of neighbouring tiles, as a share of a tile.
    """

    size: tuple[int, int]
    tile: tuple[int, int]
    overlap: float

    @cached_property
    def starts(self) -> tuple[list[int], list[int]]:
        """First row of each row of tiles, and first column of each column of tiles."""
        rows, columns = (
            tile_starts(side, tile, self.overlap) for side, tile in zip(self.size, self.tile, strict=True)
        )
        return rows, columns

    @cached_property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (rows of tiles, tile height) and (columns of tiles, tile width), float32; see `blending_weights`."""
        (rows, columns), (height, width) = self.starts, self.tile
        return blending_weights(rows, height), blending_weights(columns, width)

    def __len__(self) -> int:
        return len(self.starts[0]) * len(self.starts[1])

    def cut(self, picture: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the tiles (tile height, tile width, ...) of an image (height, width, ...), row by row."""
        missing = [(0, max(0, tile - side)) for side, tile in zip(self.size, self.tile, strict=True)]
        if any(after for _, after in missing):
            picture = np.pad(picture, missing + [(0, 0)] * (picture.ndim - 2), mode="symmetric")
        for top in self.starts[0]:
            for left in self.starts[1]:
                yield picture[top : top + self.tile[0], left : left + self.tile[1]]

    def add(self, merged: np.ndarray, index: int, tile_map: np.ndarray) -> None:
        """Add the map (tile height, tile width) of tile `index` to the merged map (height, width), in place."""
        row, column = divmod(index, len(self.starts[1]))
        top, left = self.starts[0][row], self.starts[1][column]
        weight = self.weights[0][row][:, None] * self.weights[1][column]
        part = merged[top : top + self.tile[0], left : left + self.tile[1]]
        part += (tile_map * weight)[: part.shape[0], : part.shape[1]]


def tile_starts(side: int, tile: int, overlap: float) -> list[int]:
    """Start positions of the fewest evenly spaced tiles that cover a side with at least this overlap."""
    if side <= tile:
        return [0]
    step = max(1, math.floor(tile * (1 - overlap)))
    count = math.ceil((side - tile) / step) + 1
    return [round(index * (side - tile) / (count - 1)) for index in range(count)]


def blending_weights(starts: list[int], tile: int) -> np.ndarray:
    """Weights (tiles, tile), float32, of the tiles of one side at their pixels, with a sum of one at every pixel.

    Each tile fades out towards its border, where its neighbour sees more of the surroundings.
    """
    window = np.sin(np.pi * (np.arange(tile) + 0.5) / tile) ** 2
    total = np.zeros(starts[-1] + tile)
    for start in starts:
        total[start : start + tile] += window
    return np.stack([window / total[start : start + tile] for start in starts]).astype(np.float32)
