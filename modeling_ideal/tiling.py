"""Detection in overlapping tiles at full resolution, so that small defects in large images are not lost in resizing.

The normal patches of all tiles of all references are pooled, so parts need not be aligned. There would be far too many
(an image of 4000 x 3000 pixels has 110,000), so at most `max_patches` are kept: each tile has an equal share, selected
such that no patch is far from a kept one. With the default, matching a tile costs about as much as encoding it with a
ViT-S.
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

DEFECT_TILES = 4  # kept per abnormal reference: a small defect is in at most this many overlapping tiles


class TiledDetection(NamedTuple):
    """The result of one image."""

    score: float  # highest score of all tiles, which does not depend on the size of the image
    anomaly_map: Tensor  # (H, W) float32 in [0, 1], of the image's own size


class TiledDetector:
    """Detects anomalies in tiles, for references and images of any size.

    Args:
        model: an `IdealModel`.
        processor: the model's processor, for its normalisation and default size.
        tile_size: side of a tile in pixels, or height and width; multiples of the patch size. Default: the size of
            the processor.
        overlap: minimum overlap of neighbouring tiles, as a share of a tile.
        max_patches: number of normal patches to keep from all references together.
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
        self.processor = IdealImageProcessor(  # does not resize tiles
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
        """Encode a reference set, which can be saved and loaded like any other.

        Args:
            normal: normal images; without any, the abnormal images outside their masks are taken as normal.
            abnormal: images with a defect, of which the tiles with most of the defect are kept.
            masks: the mask of each abnormal image, at its own size; None to take the most anomalous tile of each.
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
        """Score one image.

        Args:
            image: an image of any size.
            references: output of `encode_references`, with tiles of the same size.
            smoothing: standard deviation of the Gaussian smoothing of the map, in pixels; 0 for none.
        """
        if references.tile_size != self.tile_size:
            raise ValueError(
                f"references: expected a set encoded in tiles of {self.tile_size}, got {references.tile_size}"
            )
        if references.fingerprint != self.model.fingerprint:
            raise ValueError("references: expected a set encoded by this model, got another's; encode it again")
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
        """Find a threshold for the scores of `detect`, by scoring each reference against the others.

        To bound the memory, the others are encoded again for each reference. A single abnormal image is not scored,
        because no other reference shows its defect.
        """
        if len(normal) < 2:
            raise ValueError(f"expected at least two normal images to calibrate tiles, got {len(normal)}")

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
        """Select normal patches (Q, C), at most `max_patches`, of `count` images outside their masks."""
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
        """Features (T, h, w, C) of the tiles with a defect, and their patch masks (1, T, h, w) if there are masks."""
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
        """Yield the features (h, w, C) of each tile, encoding a few at a time."""
        tiles = iter(tiles)
        while batch := list(islice(tiles, IMAGES_AT_ONCE)):
            yield from self.model.extract_features(self.processor(query=batch)["query"])

    def _patch_mask(self, mask: np.ndarray) -> Tensor:
        """Reduce the mask (H, W) of a tile to patches (h, w), bool."""
        pixels = torch.from_numpy(np.ascontiguousarray(mask)).to(self.model.device)
        return patch_masks(pixels, self.model.config.patch_size)

    def _grid(self, picture: np.ndarray) -> TileGrid:
        return TileGrid((picture.shape[0], picture.shape[1]), self.tile_size, self.overlap)

    def _check(self, normal: Sequence, abnormal: Sequence, masks: Sequence | None) -> None:
        if not len(normal) and not len(abnormal):
            raise ValueError("expected normal or abnormal images, got neither")
        if masks is not None and len(masks) != len(abnormal):
            raise ValueError(f"masks: expected one for each of {len(abnormal)} abnormal images, got {len(masks)}")
        if not len(normal) and masks is None:
            raise ValueError("expected normal images, or masks of the abnormal ones, got neither")


def _without(group: Sequence, index: int) -> list:
    """All entries of a group but one."""
    return [*group[:index], *group[index + 1 :]]


def representative_patches(patches: Tensor, known: Sequence[Tensor], count: int) -> Tensor:
    """Select at most `count` of the patches (P, C), each the least similar to those before it and the known ones."""
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
