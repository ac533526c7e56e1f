"""Overlapping tiles of an image, and the merging of their maps into one. Pure functions.

Tiles form a grid, so rows and columns can be treated separately: where the tiles of a side start, the core of each,
and the weight of each at every pixel. The border of a tile, where its neighbour sees more of the surroundings, is left
to the neighbour: only the cores of the tiles are judged, which overlap by two patches or a little more. The weights of
each side add up to one at every pixel, and so do their products.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np


@dataclass(frozen=True)
class TileGrid:
    """Tiles of one size that cover an image.

    Args:
        size: height and width of the image.
        tile: height and width of a tile; an image with a shorter side is padded by reflection.
        overlap: minimum overlap of neighbouring tiles, as a share of a tile.
        patch: height and width of a patch, of which a core has a whole number.
    """

    size: tuple[int, int]
    tile: tuple[int, int]
    overlap: float
    patch: tuple[int, int] = (1, 1)

    @cached_property
    def starts(self) -> tuple[list[int], list[int]]:
        """First row of each row of tiles, and first column of each column of tiles."""
        rows, columns = (
            tile_starts(side, tile, self.overlap) for side, tile in zip(self.size, self.tile, strict=True)
        )
        return rows, columns

    @cached_property
    def cores(self) -> tuple[list[slice], list[slice]]:
        """Rows of patches in the core of each row of tiles, and columns of patches for each column of tiles."""
        rows, columns = (tile_cores(*side) for side in zip(self.starts, self.tile, self.patch, strict=True))
        return rows, columns

    @cached_property
    def _blending(self) -> list[tuple[list[int], list[np.ndarray]]]:
        """First pixel of each core and its weights, float32, for rows and columns; see `blending_weights`."""
        sides = []
        for starts, cores, patch in zip(self.starts, self.cores, self.patch, strict=True):
            first = [start + core.start * patch for start, core in zip(starts, cores, strict=True)]
            sides.append((first, blending_weights(first, [(core.stop - core.start) * patch for core in cores])))
        return sides

    def core(self, index: int) -> tuple[slice, slice]:
        """Rows and columns of the patches of tile `index` that are judged."""
        row, column = divmod(index, len(self.starts[1]))
        return self.cores[0][row], self.cores[1][column]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns of tiles."""
        return len(self.starts[0]), len(self.starts[1])

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

    def core_size(self, index: int) -> tuple[int, int]:
        """Height and width of the core of tile `index` in pixels."""
        (rows, columns), (height, width) = self.core(index), self.patch
        return (rows.stop - rows.start) * height, (columns.stop - columns.start) * width

    def blocks(self) -> Iterator[tuple[list[int], list[int]]]:
        """Divide the tiles into blocks, at most two along each side.

        Yields:
            The tiles of each block, and all tiles that share a pixel with the block, itself included.
        """
        rows, columns = (_halves(starts, tile) for starts, tile in zip(self.starts, self.tile, strict=True))
        for halves in product(rows, columns):
            inside, touching = (
                [row * len(self.starts[1]) + column for row, column in product(*sides)]
                for sides in zip(*halves, strict=True)
            )
            yield inside, touching

    def add(self, merged: np.ndarray, index: int, tile_map: np.ndarray) -> None:
        """Add the map (..., core height, core width) of tile `index` to the merged map (..., height, width)."""
        row, column = divmod(index, len(self.starts[1]))
        (tops, down), (lefts, across) = self._blending
        weight = down[row][:, None] * across[column]
        part = merged[..., tops[row] : tops[row] + len(weight), lefts[column] : lefts[column] + weight.shape[1]]
        part += (tile_map * weight)[..., : part.shape[-2], : part.shape[-1]]


def tile_starts(side: int, tile: int, overlap: float) -> list[int]:
    """Start positions of the fewest evenly spaced tiles that cover a side with at least this overlap."""
    if side <= tile:
        return [0]
    step = max(1, math.floor(tile * (1 - overlap)))
    count = math.ceil((side - tile) / step) + 1
    return [round(index * (side - tile) / (count - 1)) for index in range(count)]


def _halves(starts: list[int], tile: int) -> list[tuple[list[int], list[int]]]:
    """The tiles of each half of a side, and those that share a pixel with that half."""
    places, middle = list(range(len(starts))), (len(starts) + 1) // 2
    halves = [half for half in (places[:middle], places[middle:]) if half]
    return [
        (half, [place for place in places if starts[half[0]] - tile < starts[place] < starts[half[-1]] + tile])
        for half in halves
    ]


def tile_cores(starts: list[int], tile: int, patch: int) -> list[slice]:
    """The patches of each tile of a side that are judged: neighbours share what overlaps, with a patch more each."""
    left_out = [max(0, (one + tile - other) // 2 // patch - 1) for one, other in pairwise(starts)]
    return [slice(before, tile // patch - after) for before, after in zip([0, *left_out], [*left_out, 0], strict=True)]


def blending_weights(starts: list[int], lengths: list[int]) -> list[np.ndarray]:
    """Weights (length,), float32, of each part of a side at its pixels, with a sum of one at every pixel.

    Each part fades out towards its ends.
    """
    windows = [np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 2 for length in lengths]
    total = np.zeros(starts[-1] + lengths[-1])
    for start, window in zip(starts, windows, strict=True):
        total[start : start + len(window)] += window
    return [
        (window / total[start : start + len(window)]).astype(np.float32)
        for start, window in zip(starts, windows, strict=True)
    ]
