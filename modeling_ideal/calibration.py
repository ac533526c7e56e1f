"""Calibration: a threshold from the references alone, each scored as if it were new. Never uses test data.

Each normal reference is scored against the others; if there is only one, altered copies of it are scored against it.
Each abnormal reference is scored with the normal ones and the deviation vectors of the other abnormal ones; if there
is only one, altered copies of it are scored, so that its deviation vectors do not meet the very patches they were made
from. They still know that defect, so an unknown one may score lower.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from .augmentation import altered_copies, altered_masks
from .input_checks import check_references
from .masks import patch_masks
from .modeling_ideal import IMAGES_AT_ONCE, IdealModel
from .reference_scores import ReferenceScores, equal_pictures
from .references import IdealReferences
from .threshold import Calibration


def calibrate(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    false_alarm: float = 0.05,
) -> Calibration:
    """Find a threshold from a reference set.

    Args:
        model: an `IdealModel`.
        normal_refs: (L1, 3, H, W), or None; masks are then required, and the patches outside them are scored as
            normal.
        abnormal_refs: (L2, 3, H, W), or None.
        masks: (L2, H, W), non-zero where anomalous, or None.
        false_alarm: the requested false-alarm rate: the share of normal images that may be called anomalous.
    """
    _, scores = _encode_and_score(model, normal_refs, abnormal_refs, masks)
    return scores.calibrate(model.config.top_fraction, false_alarm, model.config.prior)


def encode_calibrated(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    false_alarm: float = 0.05,
) -> IdealReferences:
    """Encode and calibrate a reference set, with one pass of each image through the backbone.

    The arguments are those of `calibrate`.
    """
    references, scores = _encode_and_score(model, normal_refs, abnormal_refs, masks)
    fraction = model.config.top_fraction
    calibration = scores.calibrate(fraction, false_alarm, model.config.prior)
    return replace(references, calibration=calibration, top_fraction=fraction, scores=scores)


@torch.no_grad()
def _encode_and_score(
    model: IdealModel, normal_refs: Tensor | None, abnormal_refs: Tensor | None, masks: Tensor | None
) -> tuple[IdealReferences, ReferenceScores]:
    """Encode a reference set, and score each of its images as if it were new."""
    _check(model, normal_refs, abnormal_refs, masks)
    training = model.training
    try:
        model.eval()
        known = _Features(
            None if normal_refs is None else model.extract_features(normal_refs, IMAGES_AT_ONCE),
            None if abnormal_refs is None else model.extract_features(abnormal_refs, IMAGES_AT_ONCE),
            None if masks is None else _patch_masks(model, masks),
        )
        references = known.encode(model)
        normal = _scores_as_new(model, normal_refs, known.normal, references, known.without_normal)
        abnormal = _scores_as_new(model, abnormal_refs, known.abnormal, references, known.without_abnormal)
        marked = _scored_masks(model, abnormal_refs, masks)
    finally:
        model.train(training)
    references.fingerprint = model.fingerprint
    references.check_values()
    pictures = abnormal_refs if normal_refs is None else normal_refs
    count = 0 if pictures is None else len(equal_pictures(pictures))
    return references, ReferenceScores(normal, abnormal, marked, count)


class _Features(NamedTuple):
    """Features of a reference set: h x w patches with C channels per image."""

    normal: Tensor | None  # (L1, h, w, C)
    abnormal: Tensor | None  # (L2, h, w, C)
    marked: Tensor | None  # (L2, h, w) bool

    def encode(self, model: IdealModel) -> IdealReferences:
        """Encode this set."""
        return model.encode_features(*(None if part is None else part[None] for part in self))

    def without_normal(self, indices: Sequence[int]) -> "_Features":
        """The set without some of its normal references."""
        return self._replace(normal=_drop(self.normal, indices))

    def without_abnormal(self, indices: Sequence[int]) -> "_Features":
        """The set without some of its abnormal references."""
        return self._replace(abnormal=_drop(self.abnormal, indices), marked=_drop(self.marked, indices))


def _scores_as_new(
    model: IdealModel,
    images: Tensor | None,
    features: Tensor | None,
    references: IdealReferences,
    without: Callable[[Sequence[int]], _Features],
) -> Tensor:
    """Patch scores (n, h, w) of each image against the others, or of altered copies if there is only one image.

    Args:
        model: an `IdealModel`.
        images: (L, 3, H, W), or None for none.
        features: (L, h, w, C) of the images.
        references: the whole set, with these images.
        without: returns the set without the images of the given indices.
    """
    if images is None or features is None:
        return torch.zeros(0, 0, 0)
    distinct = equal_pictures(images)
    if len(distinct) == 1:
        copies = model.extract_features(altered_copies(images[:1], model.config.patch_size), IMAGES_AT_ONCE)
        maps = [_patch_scores(model, copy, references) for copy in copies]
    else:
        maps = [_patch_scores(model, features[equal[0]], without(equal).encode(model)) for equal in distinct]
    return torch.stack(maps).cpu()


def _scored_masks(model: IdealModel, images: Tensor | None, masks: Tensor | None) -> Tensor | None:
    """Patch masks (n, h, w) of the images that `_scores_as_new` scores; None without masks (L, H, W)."""
    if images is None or masks is None:
        return None
    firsts = masks[[equal[0] for equal in equal_pictures(images)]]
    scored = firsts if len(firsts) > 1 else altered_masks(firsts, model.config.patch_size)
    return _patch_masks(model, scored).cpu()


def _patch_scores(model: IdealModel, features: Tensor, references: IdealReferences) -> Tensor:
    """Patch scores (h, w) of an image's features (h, w, C)."""
    return model.score_features(features[None], references, (1, 1)).patch_scores[0]


def _patch_masks(model: IdealModel, masks: Tensor) -> Tensor:
    """Reduce pixel masks (L, H, W) to patch masks (L, h, w), bool."""
    return patch_masks(masks.to(model.device), model.config.patch_size)


def _drop(group: Tensor | None, indices: Sequence[int]) -> Tensor | None:
    """Remove some entries of a tensor; None stays None."""
    return None if group is None else group[[index for index in range(len(group)) if index not in indices]]


def _check(model: IdealModel, normal_refs: Tensor | None, abnormal_refs: Tensor | None, masks: Tensor | None) -> None:
    check_references(normal_refs, abnormal_refs, masks, model.config.patch_size, model.config.num_channels)
    for name, images in (("normal_refs", normal_refs), ("abnormal_refs", abnormal_refs)):
        if images is not None and images.ndim != 4:
            raise ValueError(
                f"{name}: expected one reference set (n, 3, H, W) to calibrate, got {tuple(images.shape)}"
            )
    if normal_refs is None and masks is None:
        raise ValueError(
            "expected normal_refs, or masks that say which part of abnormal_refs is normal, to calibrate; got neither"
        )
