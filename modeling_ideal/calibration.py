"""Calibration: references scored as if they were new, and a threshold from their scores. Never uses test data.

With several normal references each is scored against the others; of a single one, altered copies are scored
against it. The abnormal references likewise: each against the normal ones and the deviation vectors of the other
abnormal ones; of a single one, altered copies, so that its deviation vectors do not meet the very patches they
were made of. They still know that defect: an unknown one may score lower.
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
from .references import IdealReferences
from .scoring import image_scores
from .threshold import Calibration


def calibrate(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    false_alarm: float = 0.05,
) -> Calibration:
    """A threshold from a reference set alone.

    Args:
        model: an `IdealModel`.
        normal_refs: (L1, 3, H, W). None if there are none; then masks are needed, and what is outside them is
            scored as normal.
        abnormal_refs: (L2, 3, H, W) or None.
        masks: (L2, H, W), non-zero where anomalous, or None.
        false_alarm: the share of normal images that may be called anomalous.
    """
    return _encode_and_calibrate(model, normal_refs, abnormal_refs, masks, false_alarm)[1]


def encode_calibrated(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    false_alarm: float = 0.05,
) -> IdealReferences:
    """`model.encode_references` with the calibration in it, and no picture twice through the backbone.

    Arguments as in `calibrate`.
    """
    references, calibration = _encode_and_calibrate(model, normal_refs, abnormal_refs, masks, false_alarm)
    return replace(references, calibration=calibration)


@torch.no_grad()
def _encode_and_calibrate(
    model: IdealModel,
    normal_refs: Tensor | None,
    abnormal_refs: Tensor | None,
    masks: Tensor | None,
    false_alarm: float,
) -> tuple[IdealReferences, Calibration]:
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
        normal_scores, abnormal_scores = _score_groups(model, known, references, normal_refs, abnormal_refs, masks)
    finally:
        model.train(training)
    references.fingerprint = model.fingerprint
    pictures = next(images for images in (normal_refs, abnormal_refs) if images is not None)
    count = len(_equal_pictures(pictures))
    return references, Calibration.from_scores(normal_scores, abnormal_scores, false_alarm, count)


class _Features(NamedTuple):
    """A reference set after the backbone: h x w patches, C channels."""

    normal: Tensor | None  # (L1, h, w, C)
    abnormal: Tensor | None  # (L2, h, w, C)
    marked: Tensor | None  # (L2, h, w) bool

    def encode(self, model: IdealModel) -> IdealReferences:
        """As the model keeps it."""
        return model.encode_features(*(None if part is None else part[None] for part in self))

    def without_normal(self, indices: Sequence[int]) -> "_Features":
        """Some normal references left out."""
        return self._replace(normal=_drop(self.normal, indices))

    def without_abnormal(self, indices: Sequence[int]) -> "_Features":
        """Some abnormal references left out."""
        return self._replace(abnormal=_drop(self.abnormal, indices), marked=_drop(self.marked, indices))


def _score_groups(
    model: IdealModel,
    known: _Features,
    references: IdealReferences,
    normal_refs: Tensor | None,
    abnormal_refs: Tensor | None,
    masks: Tensor | None,
) -> tuple[list[float], list[float]]:
    """Scores of the normal and of the abnormal references, each as if it were new."""
    normal: list[float] = []
    abnormal: list[float] = []
    if known.normal is not None and normal_refs is not None:
        maps = _scores_as_new(model, normal_refs, known.normal, references, known.without_normal)
        normal = [_image_score(model, scores) for scores in maps]
    if known.abnormal is None or abnormal_refs is None:
        return normal, abnormal
    maps = _scores_as_new(model, abnormal_refs, known.abnormal, references, known.without_abnormal)
    if masks is None:
        return normal, [_image_score(model, scores) for scores in maps]
    firsts = masks[[equal[0] for equal in _equal_pictures(abnormal_refs)]]
    scored = firsts if len(firsts) > 1 else altered_masks(firsts, model.config.patch_size)
    for scores, mask in zip(maps, _patch_masks(model, scored), strict=True):
        abnormal.append(_defect_score(model, scores, mask))
        if normal_refs is None and not mask.all():
            normal.append(_image_score(model, scores[~mask]))
    return normal, abnormal


def _scores_as_new(
    model: IdealModel,
    images: Tensor,
    features: Tensor,
    references: IdealReferences,
    without: Callable[[Sequence[int]], _Features],
) -> list[Tensor]:
    """Patch scores (h, w) of each picture against the others, or of the altered copies of a single one.

    Args:
        model: an `IdealModel`.
        images: (L, 3, H, W).
        features: (L, h, w, C) of them.
        references: the whole set, with these pictures.
        without: the set without some of them.
    """
    distinct = _equal_pictures(images)
    if len(distinct) == 1:
        copies = model.extract_features(altered_copies(images[:1], model.config.patch_size), IMAGES_AT_ONCE)
        return [_patch_scores(model, copy, references) for copy in copies]
    return [_patch_scores(model, features[equal[0]], without(equal).encode(model)) for equal in distinct]


def _equal_pictures(images: Tensor) -> list[list[int]]:
    """Indices of the pictures (L, 3, H, W), equal ones together: one that is there twice is not new to its twin."""
    distinct: list[list[int]] = []
    for index, image in enumerate(images):
        for equal in distinct:
            if torch.equal(images[equal[0]], image):
                equal.append(index)
                break
        else:
            distinct.append([index])
    return distinct


def _patch_scores(model: IdealModel, features: Tensor, references: IdealReferences) -> Tensor:
    """(h, w) of a picture's features (h, w, C)."""
    return model.score_features(features[None], references, (1, 1)).patch_scores[0]


def _image_score(model: IdealModel, scores: Tensor) -> float:
    """Of any number of patch scores, as the model takes it."""
    return image_scores(scores.flatten()[None], model.config.top_fraction).item()


def _defect_score(model: IdealModel, scores: Tensor, mask: Tensor) -> float:
    """Image score (h, w) of an abnormal reference as far as its defect, not something else in it, is the reason."""
    count = min(max(1, int(scores.numel() * model.config.top_fraction)), int(mask.sum()))
    image = _image_score(model, scores)
    return min(image, scores[mask].topk(count).values.mean().item()) if count else image  # 0: moved out of sight


def _patch_masks(model: IdealModel, masks: Tensor) -> Tensor:
    """(L, H, W) to (L, h, w) bool."""
    return patch_masks(masks.to(model.device), model.config.patch_size)


def _drop(group: Tensor | None, indices: Sequence[int]) -> Tensor | None:
    """Without some of its entries."""
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
