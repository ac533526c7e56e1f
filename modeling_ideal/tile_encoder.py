"""Pictures of any size as features of their tiles."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from .image_processing_ideal import IdealImageProcessor
from .input_checks import check_number
from .masks import patch_masks
from .modeling_ideal import IMAGES_AT_ONCE, IdealModel
from .references_file import LARGEST_TILE_SIDE
from .tile_grid import TileGrid

Tile = TypeVar("Tile")

MANY_TILES = 32  # from which on progress is shown, unless transformers' progress bars are switched off
SECONDS = 2.0  # before which a bar is not shown


class TileEncoder:
    """Cuts pictures into tiles and extracts the features of the tiles, each once.

    Args:
        model: an `IdealModel`.
        processor: the model's processor, for its normalisation and default size.
        tile_size: side of a tile in pixels, or height and width; multiples of the patch size. Default: the size of
            the processor.
        overlap: minimum overlap of neighbouring tiles, as a share of a tile.
    """

    def __init__(
        self,
        model: IdealModel,
        processor: IdealImageProcessor,
        tile_size: int | tuple[int, int] | None,
        overlap: float,
    ) -> None:
        check_number("overlap", overlap, "in 0..0.75, a share of a tile", lambda value: 0 <= value <= 0.75)
        self.model = model
        self.overlap = overlap
        if isinstance(tile_size, tuple):
            size = {"height": tile_size[0], "width": tile_size[1]}
        else:
            size = dict(processor.size) if tile_size is None else {"height": tile_size, "width": tile_size}
        self.processor = IdealImageProcessor(  # does not resize tiles
            size=size,
            patch_size=processor.patch_size,
            image_mean=processor.image_mean,
            image_std=processor.image_std,
        )
        self.tile_size = (self.processor.size["height"], self.processor.size["width"])
        if max(self.tile_size) > LARGEST_TILE_SIDE:
            raise ValueError(f"tile_size: expected sides of at most {LARGEST_TILE_SIDE} pixels, got {self.tile_size}")

    def grid(self, picture: np.ndarray) -> TileGrid:
        """The tiles of a picture or mask (H, W, ...)."""
        size = (picture.shape[0], picture.shape[1])
        return TileGrid(size, self.tile_size, self.overlap, self.model.config.patch_size)

    def pixels(self, tiles: list[np.ndarray]) -> Tensor:
        """Normalised pixels (t, 3, H, W) of tiles (H, W, 3)."""
        return self.processor(query=tiles)["query"]

    def features(self, tiles: Iterable[np.ndarray]) -> Iterator[Tensor]:
        """Yield the features (h, w, C) of each tile (H, W, 3), encoding a few at a time."""
        tiles = iter(tiles)
        while batch := list(islice(tiles, IMAGES_AT_ONCE)):
            yield from self.model.extract_features(self.pixels(batch))

    def picture_features(self, picture: np.ndarray, name: str) -> Iterator[Tensor]:
        """Yield the features (h, w, C) of each tile of a picture (H, W, 3), showing progress if there are many."""
        grid = self.grid(picture)
        return progress(self.features(grid.cut(picture)), len(grid), name)

    def patch_masks(self, mask: np.ndarray) -> Tensor:
        """Reduce the mask (H, W) of a picture to the patches of its tiles: (T, h, w) bool, on the model's device."""
        patch_size = self.model.config.patch_size
        tiles = self.grid(mask).cut(mask)
        parts = [patch_masks(torch.from_numpy(np.ascontiguousarray(tile)), patch_size) for tile in tiles]
        return torch.stack(parts).to(self.model.device)


def progress(tiles: Iterable[Tile], count: int, name: str) -> Iterator[Tile]:
    """Pass on `count` tiles, showing progress if there are many and they take long."""
    bar = logging.tqdm(
        tiles, total=count, desc=name, unit="tile", leave=False, delay=SECONDS, disable=count < MANY_TILES
    )
    return iter(bar)
