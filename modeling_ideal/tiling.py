"""Large pictures in overlapping tiles at their own resolution, so that a small defect is not resized away.

The normal patches of all tiles of all references are pooled: parts need not be aligned. Pooled they would be far too
many (a picture of 4000 x 3000 pixels has 110,000), so at most `max_patches` are kept, each tile's share chosen so that
no patch is far from a kept one. With the default, matching a tile costs about as much as its way through a ViT-S.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .image_inputs import ImageInput, load_image
from .image_processing_ideal import IdealImageProcessor, gaussian_smoothing
from .masks import MaskInput, load_mask, patch_masks
from .modeling_ideal import IMAGES_AT_ONCE, IdealModel
from .normal_variation_eraser import nearest_normals, unit
from .references import IdealReferences
from .threshold import Calibration
from .tile_grid import TileGrid

DEFECT_TILES = 4  # of an abnormal reference: a small defect lies in so many overlapping tiles at most


class TiledDetection(NamedTuple):
    """What is said of one picture."""

    score: float  # of the tile with the highest one: not diluted by the size of the picture
    anomaly_map: Tensor  # (H, W) float32 in [0, 1], of the picture's own size


class TiledDetector:
    """IDEAL on tiles; references and pictures of any size.

    Args:
        model: an `IdealModel`.
        processor: of the model; its normalisation is used, and its size unless another is given.
        tile_size: side of a tile in pixels, or height and width; multiples of the patch size.
        overlap: the least share of a tile that its neighbour covers too.
        max_patches: normal patches kept of all references together.
    """

    def __init__(
        self,
        model: IdealModel,
        processor: IdealImageProcessor,
        tile_size: int | tuple[int, int] | None = None,
        overlap: float = 0.25,
        max_patches: int = 2**15,
    ) -> None:
        if not 0 <= overlap <= 0.75:
            raise ValueError(f"overlap: expected a share of a tile in 0..0.75, got {overlap!r}")
        if max_patches < 1:
            raise ValueError(f"max_patches: expected at least 1, got {max_patches!r}")
        self.model = model
        self.overlap = overlap
        self.max_patches = max_patches
        if isinstance(tile_size, tuple):
            size = {"height": tile_size[0], "width": tile_size[1]}
        else:
            size = dict(processor.size) if tile_size is None else {"height": tile_size, "width": tile_size}
        self.processor = IdealImageProcessor(  # that leaves a tile as it is
            size=size,
            patch_size=processor.patch_size,
            image_mean=processor.image_mean,
            image_std=processor.image_std,
        )
        self.tile_size = (self.processor.size["height"], self.processor.size["width"])

    @torch.no_grad()
    def encode_references(
        self,
        normal: Sequence[ImageInput] = (),
        abnormal: Sequence[ImageInput] = (),
        masks: Sequence[MaskInput] | None = None,
    ) -> IdealReferences:
        """Encode a reference set once a product; it is saved and loaded like any other.

        Args:
            normal: pictures; without any, the abnormal ones are taken as normal outside their masks.
            abnormal: pictures with a defect, of which the tiles with most of it are kept.
            masks: one for each abnormal picture, at its own size; None to look for each defect in the most anomalous
                tile.
        """
        self._check(normal, abnormal, masks)
        training = self.model.training
        try:
            self.model.eval()
            return self._encode(normal, abnormal, masks)
        finally:
            self.model.train(training)

    @torch.no_grad()
    def detect(self, image: ImageInput, references: IdealReferences, smoothing: float = 4.0) -> TiledDetection:
        """Score one picture.

        Args:
            image: of any size.
            references: from `encode_references`, with tiles of the same size.
            smoothing: standard deviation in pixels of a Gaussian over the map; 0 for none.
        """
        if references.tile_size != self.tile_size:
            raise ValueError(
                f"references: expected a set encoded in tiles of {self.tile_size}, got {references.tile_size}"
            )
        if references.fingerprint != self.model.fingerprint:
            raise ValueError("references: expected a set encoded by this model, got one of another; encode it again")
        references = references.to(self.model.device)
        picture = load_image(image, "image")
        grid = self._grid(picture)
        merged = np.zeros(grid.size, np.float32)
        score = 0.0
        for index, features in enumerate(self._tile_features(grid.cut(picture))):
            output = self.model.score_features(features[None], references, self.tile_size)
            score = max(score, output.scores.item())
            grid.add(merged, index, output.anomaly_maps[0].cpu().numpy())
        anomaly_map = torch.from_numpy(merged)
        return TiledDetection(score, gaussian_smoothing(anomaly_map[None], smoothing)[0] if smoothing else anomaly_map)

    def calibrate(
        self,
        normal: Sequence[ImageInput],
        abnormal: Sequence[ImageInput] = (),
        masks: Sequence[MaskInput] | None = None,
        false_alarm: float = 0.05,
    ) -> Calibration:
        """A threshold for the scores of `detect`: each of two or more references is scored against the others.

        Memory stays bounded, so everything is encoded again for each of them. A single abnormal picture is not scored:
        nothing but itself would know its defect.
        """
        if len(normal) < 2:
            raise ValueError(f"expected at least two normal pictures to calibrate tiles, got {len(normal)}")

        def score(image: ImageInput, *references: Any) -> float:
            return self.detect(image, self.encode_references(*references), smoothing=0).score

        normal_scores = [score(image, _without(normal, index), abnormal, masks) for index, image in enumerate(normal)]
        abnormal_scores = [
            score(image, normal, _without(abnormal, index), None if masks is None else _without(masks, index))
            for index, image in enumerate(abnormal)
            if len(abnormal) > 1
        ]
        return Calibration.from_scores(normal_scores, abnormal_scores, false_alarm)

    def _encode(
        self, normal: Sequence[ImageInput], abnormal: Sequence[ImageInput], masks: Sequence[MaskInput] | None
    ) -> IdealReferences:
        defects = [load_image(image, f"abnormal[{index}]") for index, image in enumerate(abnormal)]
        marks = [
            load_mask(mask, defects[index].shape[:2], f"masks[{index}]") for index, mask in enumerate(masks or ())
        ]
        if len(normal):
            bank = self._bank(
                (load_image(image, f"normal[{index}]") for index, image in enumerate(normal)), len(normal)
            )
        else:
            bank = self._bank(defects, len(defects), marks)
        references = IdealReferences([bank])
        if defects:
            tiles, marked = self._defect_tiles(defects, marks, references)
            references = self.model.encode_features(bank[None, None, None], tiles[None], marked)
        return replace(
            references,
            num_normal=len(normal),
            num_abnormal=len(abnormal),
            fingerprint=self.model.fingerprint,
            tile_size=self.tile_size,
        )

    def _bank(self, pictures: Iterable[np.ndarray], count: int, masks: Sequence[np.ndarray] = ()) -> Tensor:
        """(Q, C) normal patches of `count` pictures, Q at most `max_patches`, those in masks left out."""
        kept: list[Tensor] = []
        for index, picture in enumerate(pictures):
            grid = self._grid(picture)
            share = max(1, self.max_patches // (count * len(grid)))
            marked = (self._patch_mask(tile) for tile in grid.cut(masks[index])) if masks else None
            for features in self._tile_features(grid.cut(picture)):
                patches = features.flatten(0, 1) if marked is None else features[~next(marked)]
                kept.append(representative_patches(patches, kept, share))
        bank = torch.cat(kept)[: self.max_patches]
        if not len(bank):
            raise ValueError("masks: expected some patch outside them to serve as normal, got masks over all of them")
        return bank

    def _defect_tiles(
        self, pictures: Sequence[np.ndarray], masks: Sequence[np.ndarray], normals: IdealReferences
    ) -> tuple[Tensor, Tensor | None]:
        """Features (T, h, w, C) of tiles with a defect, and their patch masks (1, T, h, w); None to estimate them."""
        chosen: list[Tensor] = []
        marked: list[Tensor] = []
        for index, picture in enumerate(pictures):
            grid = self._grid(picture)
            if masks:
                marks = list(grid.cut(masks[index]))  # views, no copies
                areas = np.array([mark.sum() for mark in marks])
                places = [place for place in np.argsort(-areas, kind="stable")[:DEFECT_TILES] if areas[place]]
                marked += [self._patch_mask(marks[place]) for place in places]
            else:
                scores = [
                    self.model.score_features(features[None], normals, (1, 1)).scores.item()
                    for features in self._tile_features(grid.cut(picture))
                ]
                places = [int(np.argmax(scores))]
            cuts = list(grid.cut(picture))
            chosen += self._tile_features(cuts[place] for place in places)
        return torch.stack(chosen), torch.stack(marked)[None] if marked else None

    def _tile_features(self, tiles: Iterable[np.ndarray]) -> Iterator[Tensor]:
        """(h, w, C) of each tile; a few go through the backbone at a time."""
        tiles = iter(tiles)
        while batch := list(islice(tiles, IMAGES_AT_ONCE)):
            yield from self.model.extract_features(self.processor(query=batch)["query"])

    def _patch_mask(self, mask: np.ndarray) -> Tensor:
        """Pixels (H, W) of a tile to patches (h, w), bool."""
        pixels = torch.from_numpy(np.ascontiguousarray(mask)).to(self.model.device)
        return patch_masks(pixels, self.model.config.patch_size)

    def _grid(self, picture: np.ndarray) -> TileGrid:
        return TileGrid((picture.shape[0], picture.shape[1]), self.tile_size, self.overlap)

    def _check(self, normal: Sequence, abnormal: Sequence, masks: Sequence | None) -> None:
        if not len(normal) and not len(abnormal):
            raise ValueError("expected normal or abnormal pictures, got none of them")
        if masks is not None and len(masks) != len(abnormal):
            raise ValueError(f"masks: expected one for each of {len(abnormal)} abnormal pictures, got {len(masks)}")
        if not len(normal) and masks is None:
            raise ValueError("expected normal pictures, or masks of the abnormal ones, got neither")


def _without(group: Sequence, index: int) -> list:
    """All but one."""
    return [*group[:index], *group[index + 1 :]]


def representative_patches(patches: Tensor, known: Sequence[Tensor], count: int) -> Tensor:
    """At most `count` of the patches (P, C), each the least like those chosen before it and the known ones."""
    if count >= len(patches):
        return patches
    directions = unit(patches)
    nearest = torch.full((len(patches),), -torch.inf, device=patches.device)
    if known:
        nearest = nearest_normals(directions, unit(torch.cat(list(known))), 1)[0][:, 0]
    chosen = []
    for _ in range(count):
        chosen.append(int(nearest.argmin()))
        nearest = torch.maximum(nearest, directions @ directions[chosen[-1]])
    return patches[chosen]
