"""Calibration: a threshold from the references alone, each scored as if it were new. Never uses test data.

Each normal reference is scored against the others; if there is only one, altered copies of it are scored against it.
Of very many references only some are scored, still against all others (`PictureGroup.scored`).
Each abnormal reference is scored with the normal ones and the deviation vectors of the other abnormal ones; if there
is only one, altered copies of it are scored, so that its deviation vectors do not meet the very patches they were made
from. They still know that defect, so an unknown one may score lower.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from .anomalous_patches import select_anomalous_patches
from .input_checks import check_number
from .modeling_ideal import IdealModel
from .normal_bank import NormalBank
from .reference_pictures import PictureGroup, ReferencePictures
from .reference_reading import read_pictures
from .reference_scores import ReferenceScores, diversity
from .references import IdealReferences
from .threshold import Calibration

DEFAULT_FALSE_ALARM = 0.05


def calibrate(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    false_alarm: float = DEFAULT_FALSE_ALARM,
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
    calibration = encode_calibrated(model, normal_refs, abnormal_refs, masks, false_alarm).calibration
    if calibration is None:
        raise RuntimeError("expected a calibration of references that were encoded with one")
    return calibration


def encode_calibrated(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    false_alarm: float = DEFAULT_FALSE_ALARM,
) -> IdealReferences:
    """Encode and calibrate a reference set, with one pass of each image through the backbone.

    The arguments are those of `calibrate`.
    """
    check_number("false_alarm", false_alarm, "above 0, below 0.5", lambda value: 0 < value < 0.5)
    if normal_refs is None and masks is None and abnormal_refs is not None:
        raise ValueError(UNKNOWN_NORMAL)
    return encode_pictures(model, read_pictures(model, normal_refs, abnormal_refs, masks, false_alarm=false_alarm))


UNKNOWN_NORMAL = (
    "expected normal_refs, or masks that say which part of abnormal_refs is normal, to calibrate; got neither"
)


@torch.no_grad()
def encode_pictures(model: IdealModel, pictures: ReferencePictures) -> IdealReferences:
    """Encode a reference set, and calibrate it if that is wanted and possible; the backbone has nothing to do.

    Args:
        model: the model that made the features.
        pictures: the pictures of the set.
    """
    false_alarm, known = pictures.false_alarm, pictures.to(model.device)
    if false_alarm is None and pictures.tell_normal:
        false_alarm = DEFAULT_FALSE_ALARM
    if false_alarm and not pictures.tell_normal:
        raise ValueError(UNKNOWN_NORMAL)
    scores = bank = None
    with _evaluation(model):
        if known.normal is not None and (false_alarm or known.max_patches):
            bank = NormalBank(known, model.config.share_normals)
        references = _encode(model, known, bank)
        if false_alarm:
            scores = _scores_as_new(model, known, bank, references)
    references.fingerprint = model.fingerprint
    references.check_values()
    references = replace(references, pictures=pictures.to("cpu"))
    if scores is None:
        return references
    fraction = model.config.top_fraction
    calibration = scores.calibrate(fraction, false_alarm or DEFAULT_FALSE_ALARM, model.config.prior)
    return replace(references, calibration=calibration, top_fraction=fraction, scores=scores)


@contextmanager
def _evaluation(model: IdealModel) -> Iterator[None]:
    """The model without dropout, then as before."""
    training = model.training
    try:
        model.eval()
        yield
    finally:
        model.train(training)


def _encode(model: IdealModel, known: ReferencePictures, bank: NormalBank | None) -> IdealReferences:
    """Encode a whole reference set."""
    normal, abnormal = known.normal, known.abnormal
    if normal is not None and bank is not None and known.max_patches is not None:
        normals, directions = bank.without()
        references = _encode_with(model, normals.clone(), directions, abnormal)  # the bank will change
        return replace(references, num_normal=len(normal.hashes))
    marked = None if abnormal is None else abnormal.marked
    turned = None if normal is None else normal.turned
    return model.encode_features(
        None if normal is None else normal.features[None],
        None if abnormal is None else abnormal.features[None],
        None if marked is None else marked[None],
        None if turned is None else turned[None],
    )


def _encode_with(
    model: IdealModel, normals: Tensor, directions: Tensor, abnormal: PictureGroup | None
) -> IdealReferences:
    """Encode a reference set from its normal patches (Q, C), the same at length 1, and its abnormal pictures."""
    bank = normals[None, None, None]
    if abnormal is None:
        references = model.encode_features(bank, None, None)
    else:
        features, marked = abnormal.features, abnormal.marked
        found = select_anomalous_patches(normals, features, marked, model.deviations, directions=directions)
        marks = None if marked is None else marked[None]
        references = model.encode_features(bank, features[None], marks, sets=[found])
    references.normal_directions = [directions]
    return references


def _scores_as_new(
    model: IdealModel, known: ReferencePictures, bank: NormalBank | None, references: IdealReferences
) -> ReferenceScores:
    """Score each picture of a reference set as if it were new; at most so many of each kind as `scored` says."""
    normal, abnormal = known.normal, known.abnormal
    counted = abnormal if normal is None else normal

    def without(kind: str, indices: list[int]) -> IdealReferences:
        others = abnormal.without(indices) if abnormal is not None and kind == "abnormal" else abnormal
        if bank is None:
            return _encode(model, replace(known, abnormal=others), None)
        return _encode_with(model, *bank.without(kind, indices), others)

    return ReferenceScores(
        _scores(model, normal, references, partial(without, "normal")),
        _scores(model, abnormal, references, partial(without, "abnormal")),
        _scored_marks(abnormal),
        0 if counted is None else len(counted.distinct()),
        diversity=None if counted is None else diversity(counted.good_patches()),
        smoothing=model.config.patch_smoothing,
    )


def _scores(
    model: IdealModel,
    group: PictureGroup | None,
    references: IdealReferences,
    without: Callable[[list[int]], IdealReferences],
) -> Tensor:
    """Patch scores (n, h, w) of pictures, each against the others, or of altered copies if there is only one picture.

    Args:
        model: an `IdealModel`.
        group: pictures of one kind, or None for none.
        references: the whole set, with these pictures.
        without: returns it without the pictures of the given indices.
    """
    if group is None:
        return torch.zeros(0, 0, 0)
    scored = group.scored()
    if len(scored) > 1:
        maps = [_patch_scores(model, group.features[equal[0]], without(equal)) for equal in scored]
    else:
        maps = [_patch_scores(model, copy, references) for copy in _copies(group)]
    return torch.stack(maps).cpu()


def _scored_marks(group: PictureGroup | None) -> Tensor | None:
    """Patch masks (n, h, w) of the abnormal pictures that `_scores` scores; None if they are not marked."""
    if group is None or group.marked is None:
        return None
    scored = group.scored()
    marked = group.marked[[equal[0] for equal in scored]] if len(scored) > 1 else group.marked_copies
    return None if marked is None else marked.cpu()


def _copies(group: PictureGroup) -> Tensor:
    if group.copies is None:
        raise ValueError(
            "references: expected ones that were encoded with a calibration, to calibrate them now, got ones without; "
            "encode them again"
        )
    return group.copies


def _patch_scores(model: IdealModel, features: Tensor, references: IdealReferences) -> Tensor:
    """Patch scores (h, w), not smoothed, of an image's features (h, w, C)."""
    return model.score_features(features[None], references, (1, 1), smoothed=False).patch_scores[0]
