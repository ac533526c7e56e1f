"""Detection in overlapping tiles at full resolution, so that small defects in large pictures are not lost in resizing.

Each tile is encoded like a picture of its own, and its core is scored against normal patches of all tiles of all
references. At most `max_patches` of them are kept, so that judging a tile costs little more than encoding it.

Memory, beyond the model and the pictures: a picture is judged four tiles at a time, with 8 bytes a pixel for its map.
The references take 4 bytes per channel for each of `max_patches` patches and twice as many candidates; while a
threshold is found, also for all patches of the normal references: with 192 channels, 0.8 MB a tile of 448 x 448
pixels, and 85 MB a picture of 4000 x 3000.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .image_inputs import ImageInput, image_list, load_image
from .image_processing_ideal import IdealImageProcessor, gaussian_smoothing
from .input_checks import check_number, check_smoothing
from .masks import MaskInput, load_area, load_mask, mask_list
from .modeling_ideal import IdealModel
from .reference_pictures import check_different
from .reference_scores import equal_pictures, picture_hash
from .references import IdealReferences
from .scoring import highest_patches, image_scores, scores_and_weights, upsample, weighted_map
from .threshold import Calibration
from .tile_calibration import Core, scores_as_new
from .tile_encoder import TileEncoder
from .tile_references import TiledReferences, candidate_share, marked_defect, read_normal, unmarked_defect

# The score of a picture of several tiles is the highest of many, which varies less from picture to picture than that
# of a single part, and much the same in every product: found on scenes of the source data (docs/choices.md).
TILED_PRIOR = {"spread": 0.087, "degrees": 6.0, "decrease": 0.168}


class TiledDetection(NamedTuple):
    """The result of one picture."""

    score: float  # highest score of all tiles, which does not depend on the size of the picture
    anomaly_map: Tensor  # (H, W) float32 in [0, 1], of the picture's own size
    patches: Tensor  # (P, C) features of the patches that the score is the mean of
    counted: Tensor | None  # (rows, columns, h, w) bool, the patches of each tile that affect the score; None for all


class TiledDetector:
    """Detects anomalies in tiles, for references and pictures of any size.

    Args:
        model: an `IdealModel`.
        processor: the model's processor, for its normalisation and default size.
        tile_size: side of a tile in pixels, or height and width; multiples of the patch size. Default: the size of
            the processor.
        overlap: minimum overlap of neighbouring tiles, as a share of a tile.
        max_patches: number of normal patches to keep from all references together, unless no reference is larger than
            a tile: then all are kept, as without tiles.
    """

    def __init__(
        self,
        model: IdealModel,
        processor: IdealImageProcessor,
        tile_size: int | tuple[int, int] | None = None,
        overlap: float = 0.25,
        max_patches: int = 2**11,
    ) -> None:
        if not isinstance(max_patches, int) or max_patches < 1:
            raise ValueError(f"max_patches: expected an integer >= 1, got {max_patches!r}")
        self.encoder = TileEncoder(model, processor, tile_size, overlap)
        self.model = model
        self.processor = self.encoder.processor
        self.max_patches = max_patches

    @property
    def tile_size(self) -> tuple[int, int]:
        """Height and width of a tile."""
        return self.encoder.tile_size

    @torch.no_grad()
    def encode_references(
        self,
        normal: Sequence[ImageInput] = (),
        abnormal: Sequence[ImageInput] = (),
        masks: Sequence[MaskInput] | None = None,
        false_alarm: float | None = None,
    ) -> IdealReferences:
        """Encode a reference set, which can be saved and loaded like any other.

        Args:
            normal: normal pictures; without any, the abnormal pictures outside their masks are taken as normal.
            abnormal: pictures with a defect, of which the tiles with most of the defect are kept.
            masks: the mask of each abnormal picture, at its own size; None to take the most anomalous tile of each.
            false_alarm: the requested false-alarm rate, to find a threshold for the scores of `detect`; None for none.
        """
        normal, abnormal = image_list(normal, "normal"), image_list(abnormal, "abnormal")
        masks = None if masks is None else mask_list(masks, len(abnormal))
        self._check(normal, abnormal, masks)
        check_number("false_alarm", false_alarm, "above 0, below 0.5", lambda value: 0 < value < 0.5)
        training = self.model.training
        try:
            self.model.eval()
            return self._encode(normal, abnormal, masks, false_alarm)
        finally:
            self.model.train(training)

    def calibrate(
        self,
        normal: Sequence[ImageInput] = (),
        abnormal: Sequence[ImageInput] = (),
        masks: Sequence[MaskInput] | None = None,
        false_alarm: float = 0.05,
    ) -> Calibration:
        """Find a threshold for the scores of `detect`; arguments as in `encode_references`."""
        calibration = self.encode_references(normal, abnormal, masks, false_alarm).calibration
        if calibration is None:
            raise ValueError("false_alarm: expected a share above 0 and below 0.5, got None")
        return calibration

    @torch.no_grad()
    def detect(
        self,
        image: ImageInput,
        references: IdealReferences,
        smoothing: float = 4.0,
        *,
        top_fraction: float | None = None,
        ignore_mask: MaskInput | None = None,
        name: str = "image",
    ) -> TiledDetection:
        """Score one picture.

        Args:
            image: a picture of any size.
            references: output of `encode_references`, with tiles of the same size.
            smoothing: standard deviation of the Gaussian smoothing of the map, in pixels; 0 for none.
            top_fraction: share of the highest patch scores of a tile whose mean is its score; default: the model's.
            ignore_mask: a mask, in any form, of what to ignore. The map is 0 there, and patches that touch it affect
                neither the score nor the rest of the map.
            name: what to call the picture in error messages.
        """
        check_smoothing(smoothing)
        check_number("top_fraction", top_fraction, "> 0, at most 1", lambda value: 0 < value <= 1)
        if references.tile_size != self.tile_size:
            raise ValueError(
                f"references: expected a set encoded in tiles of {self.tile_size}, got {references.tile_size}"
            )
        self.model.check_encoded(references)
        references = references.to(self.model.device)
        picture = load_image(image, name)
        grid = self.encoder.grid(picture)
        ignored, counted = self._counted(ignore_mask, grid.size, name)
        fraction = self.model.config.top_fraction if top_fraction is None else top_fraction
        merged = np.zeros((1 if ignored is None else 2, *grid.size), np.float32)  # scores, and weights if some are 0
        highest, patches = -1.0, references.normal_features[0][:0]
        for index, features in enumerate(self.encoder.picture_features(picture, name)):
            core, here = grid.core(index), counted[index % len(counted)]  # (h, w)
            scores = self._patch_scores(features, references, core, here)  # (h, w)
            parts = scores[core][None] if ignored is None else scores_and_weights(scores[core], here[core])
            grid.add(merged, index, upsample(parts, grid.core_size(index)).numpy())
            if not here.any():
                continue
            score = image_scores(scores[here][None], fraction).item()
            if not math.isfinite(score):
                raise ValueError(f"{name}: expected finite scores, got {score}")
            if score > highest:
                places = highest_patches(scores[here][None], fraction)[0].to(features.device)
                highest, patches = score, features[here.to(features.device)][places]
        maps = torch.from_numpy(merged)
        maps = gaussian_smoothing(maps, smoothing) if smoothing else maps
        if ignored is None:
            return TiledDetection(highest, maps[0], patches, None)
        counted = counted.unflatten(0, grid.shape)
        return TiledDetection(highest, weighted_map(maps[0], maps[1], ignored), patches, counted)

    def _patch_scores(self, features: Tensor, references: IdealReferences, core: Core, counted: Tensor) -> Tensor:
        """Patch scores (h, w), on the CPU, of the features (h, w, C) of a tile; 0 outside its core."""
        scores, counted = torch.zeros(counted.shape), counted[core][None].to(features.device)
        found = self.model.score_features(features[core][None], references, (1, 1), counted=counted)
        scores[core] = found.patch_scores[0].cpu()
        return scores

    def _counted(
        self, ignore_mask: MaskInput | None, size: tuple[int, int], name: str
    ) -> tuple[Tensor | None, Tensor]:
        """The ignored pixels (H, W), and the patches that count: (T, h, w), or (1, h, w) for all tiles alike."""
        if ignore_mask is None:
            patches = [side // patch for side, patch in zip(self.tile_size, self.model.config.patch_size, strict=True)]
            return None, torch.ones(1, *patches, dtype=torch.bool)
        ignored = load_area(ignore_mask, size, f"{name}, ignore_mask")
        counted = ~self.encoder.patch_masks(ignored).cpu()
        if not counted.any():
            raise ValueError(f"{name}, ignore_mask: expected some patch outside it, got none of {counted.numel()}")
        return torch.from_numpy(np.array(ignored)), counted

    def _encode(
        self,
        normal: Sequence[ImageInput],
        abnormal: Sequence[ImageInput],
        masks: Sequence[MaskInput] | None,
        false_alarm: float | None,
    ) -> IdealReferences:
        defects = [load_image(image, f"abnormal[{index}]") for index, image in enumerate(abnormal)]
        marks = [
            load_mask(mask, defects[index].shape[:2], f"masks[{index}]") for index, mask in enumerate(masks or ())
        ]
        known = self._normal_tiles(normal, defects, marks, keep_features=bool(false_alarm))
        if defects:
            chosen = [
                marked_defect(self.encoder, defect, marks[index])
                if marks
                else unmarked_defect(self.encoder, defect, known.encode(), f"abnormal[{index}]")
                for index, defect in enumerate(defects)
            ]
            known = replace(known, defects=chosen)
        references = replace(
            known.encode(),
            num_normal=len(normal),
            num_abnormal=len(abnormal),
            fingerprint=self.model.fingerprint,
            tile_size=self.tile_size,
        )
        if not false_alarm:
            return references
        scores = scores_as_new(self.encoder, known, equal_pictures(defects))
        fraction = self.model.config.top_fraction
        prior = self.model.config.prior if known.limit is None else replace(self.model.config.prior, **TILED_PRIOR)
        calibration = scores.calibrate(fraction, false_alarm, prior)
        return replace(references, calibration=calibration, top_fraction=fraction, scores=scores)

    def _normal_tiles(
        self,
        normal: Sequence[ImageInput],
        defects: Sequence[np.ndarray],
        marks: Sequence[np.ndarray],
        keep_features: bool,
    ) -> TiledReferences:
        """Encode the normal pictures, or the marked defects without any; equal pictures once."""
        pictures = [load_image(image, f"normal[{index}]") for index, image in enumerate(normal)] or defects
        if len(normal):
            check_different(*(list(map(picture_hash, group)) for group in (pictures, defects)))
        groups = equal_pictures(pictures)
        grids = [self.encoder.grid(pictures[group[0]]) for group in groups]
        limit = None if all(len(grid) == 1 for grid in grids) else self.max_patches
        share = candidate_share(grids, limit)
        read = []
        for group in groups:
            first, shown = group[0], () if len(normal) else group
            name, mask = (f"abnormal[{first}]", marks[first]) if shown else (f"normal[{first}]", None)
            read.append(read_normal(self.encoder, pictures[first], share, keep_features, name, mask, shown))
        if not any(len(picture.candidates) for picture in read):
            raise ValueError("masks: expected some patch outside them to serve as normal, got masks over all of them")
        return TiledReferences(self.model, read, (), limit)

    def _check(self, normal: Sequence, abnormal: Sequence, masks: Sequence | None) -> None:
        if not len(normal) and not len(abnormal):
            raise ValueError("expected normal or abnormal images, got neither")
        if masks is not None and len(masks) != len(abnormal):
            raise ValueError(f"masks: expected one for each of {len(abnormal)} abnormal images, got {len(masks)}")
        if not len(normal) and masks is None:
            raise ValueError("expected normal images, or masks of the abnormal ones, got neither")
