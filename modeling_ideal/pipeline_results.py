"""From patch scores and a map to what a person is told: verdict, mask, regions, type, overlay. Pure functions."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from .connected_regions import label_pixels
from .masks import MaskInput, load_area, patch_masks, resize_mask
from .references import IdealReferences

DEFAULT_THRESHOLD = 0.5  # where neither the call nor the references say another


def make_verdict(
    score: float,
    anomaly_map: np.ndarray,
    references: IdealReferences,
    *,
    defect_type: str | None = None,
    picture: np.ndarray | None = None,
    threshold: float | None = None,
    return_mask: bool = False,
    return_regions: bool = False,
) -> dict[str, Any]:
    """The result of one picture, as `AnomalyDetectionPipeline` returns it.

    Args:
        score: in 0..1.
        anomaly_map: (H, W) float32 in 0..1.
        references: what it was compared with; their calibration gives the threshold, and a probability.
        defect_type: the nearest one, where the references have types.
        picture: (H, W, 3), to draw the overlay on; None for no overlay.
        threshold: instead of that of the references.
        return_mask: add the mask.
        return_regions: add the regions.
    """
    calibration = references.calibration
    if threshold is None:
        threshold = DEFAULT_THRESHOLD if calibration is None else calibration.threshold
    anomalous = score >= threshold
    result: dict[str, Any] = {
        "score": score,
        "label": "anomalous" if anomalous else "normal",
        "threshold": float(threshold),
        "anomaly_map": anomaly_map,
    }
    if calibration is not None:
        result["probability"] = calibration.probability(score)
    if references.types:
        result["type"] = defect_type if anomalous else None
    if return_mask:
        result["mask"] = anomaly_map >= threshold
    if return_regions:
        result["regions"] = find_regions(anomaly_map >= threshold, anomaly_map)
    if picture is not None:
        result["overlay"] = draw_overlay(picture, anomaly_map, threshold)
    return result


class Region(TypedDict):
    """One connected anomalous region."""

    box: tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels; x1 and y1 are outside
    score: float  # the highest of its pixels
    area: int  # in pixels


def find_regions(mask: np.ndarray, anomaly_map: np.ndarray) -> list[Region]:
    """The regions of a mask (H, W) bool with their scores in a map (H, W), highest first.

    Pixels that touch by a corner belong together.
    """
    rows, columns = mask.nonzero()
    if not len(rows):
        return []
    regions = label_pixels(mask[None])  # (p,), in the order of `nonzero`
    count = regions.max() + 1
    scores = np.full(count, -np.inf, anomaly_map.dtype)
    np.maximum.at(scores, regions, anomaly_map[mask])
    low, high = np.full((2, count), max(mask.shape)), np.zeros((2, count), int)
    for side, places in enumerate((columns, rows)):
        np.minimum.at(low[side], regions, places)
        np.maximum.at(high[side], regions, places + 1)
    boxes = np.concatenate([low, high]).T.tolist()  # x0, y0, x1, y1 each
    areas = np.bincount(regions)
    return [
        {"box": tuple(boxes[index]), "score": float(scores[index]), "area": int(areas[index])}
        for index in np.argsort(-scores, kind="stable")
    ]


NO_WEIGHT = 1e-6  # of a pixel that no counting patch reaches


def read_ignored(
    mask: MaskInput, size: tuple[int, int], seen: tuple[int, int], patch_size: tuple[int, int], name: str
) -> tuple[Tensor, Tensor]:
    """Which pixels are ignored, and which patches count: those that no ignored pixel touches.

    Args:
        mask: any form of a mask.
        size: height and width of the picture.
        seen: the same after resizing, as the model sees it.
        patch_size: of the backbone.
        name: of the mask, for error messages.

    Returns:
        bool (H, W) of `size` and bool (h, w).
    """
    ignored = load_area(mask, size, name)
    resized = torch.from_numpy(resize_mask(ignored, seen))
    counts = ~patch_masks(resized, patch_size)
    if not counts.any():
        raise ValueError(f"{name}: expected some patch outside it, got none of {counts.numel()}")
    return torch.from_numpy(np.array(ignored)), counts


def counting_scores(scores: Tensor, counts: Tensor) -> Tensor:
    """Patch scores (h, w), 0 where they do not count, and their weights: (2, h, w).

    Interpolation and smoothing are linear: what becomes of the scores, divided by what becomes of the weights, is
    the map of the patches that count, into which nothing of the others has spread.
    """
    return torch.stack([scores * counts, counts.to(scores.dtype)])


def counting_map(values: Tensor, weights: Tensor, ignored: Tensor) -> Tensor:
    """The map (H, W) of what both have become at the picture's size; 0 where ignored."""
    return torch.where(ignored | (weights <= NO_WEIGHT), 0, values / weights.clamp_min(NO_WEIGHT))


UNKNOWN = "unknown"
# Mean cosine of an anomaly's patches to the nearest deviations of a type, below which it is like none of them.
# Differs between products: with one reference a type, photographs of the same type lie between 0.2 and 0.9 (leather).
LEAST_SIMILARITY = 0.3


def type_similarities(deviations: Tensor, references: Tensor, types: Sequence[str]) -> dict[str, float]:
    """How near an anomaly is to each type: -1..1.

    Of every patch the cosine to the nearest reference patch of the type, since a defect's patches differ among
    themselves (its rim, its middle); of an anomaly the mean over its patches.

    Args:
        deviations: (P, C) denoised deviations of the most anomalous patches of a query.
        references: (A, C) denoised deviations of the anomalous patches of the abnormal references.
        types: the type of each of the A patches.
    """
    cosines = F.normalize(deviations, dim=-1) @ F.normalize(references, dim=-1).T  # (P, A)
    similarities = {}
    for name in dict.fromkeys(types):
        of_type = torch.tensor([other == name for other in types], device=cosines.device)
        similarities[name] = float(cosines[:, of_type].amax(1).mean())
    return similarities


def nearest_type(deviations: Tensor, references: Tensor, types: Sequence[str]) -> str:
    """The type an anomaly is nearest to, or `"unknown"` where none is near; arguments as above."""
    similarities = type_similarities(deviations, references, types)
    nearest = max(similarities, key=similarities.__getitem__)
    return nearest if similarities[nearest] >= LEAST_SIMILARITY else UNKNOWN


# From nothing to heat: blue, cyan, green in the middle, and red at the hot end alone.
COLORS = np.array([(0.12, 0.16, 0.55), (0.10, 0.62, 0.90), (0.38, 0.88, 0.42), (0.98, 0.76, 0.18), (0.78, 0.07, 0.05)])
OPACITY = 0.75  # of the highest score; the photograph stays visible below
NARROWEST = 1e-6  # half of a scale, for thresholds at 0 or 1


class Scale(NamedTuple):
    """The scores at the cold and at the hot end of the colours."""

    low: float
    high: float


def threshold_scale(threshold: float) -> Scale:
    """The scale of a threshold in 0..1, which is its middle: what counts as normal stays on the cold side of green.

    Half of the threshold is already nothing; one and a half of it, or 1 if that is nearer, is red.
    """
    half = max(min(threshold / 2, 1 - threshold), NARROWEST)
    return Scale(threshold - half, threshold + half)


def heat(scores: np.ndarray, scale: Scale) -> np.ndarray:
    """Scores of any shape (...) as colours (..., 4), RGBA in 0..1: transparent at the cold end, more opaque with heat.

    With all scores equal nothing stands out, and everything is cold.
    """
    width = scale.high - scale.low
    share = np.clip((scores - scale.low) / width, 0, 1) if width > 0 else np.zeros_like(scores)
    places = np.linspace(0, 1, len(COLORS))
    channels = [np.interp(share, places, channel) for channel in COLORS.T]
    return np.stack([*channels, OPACITY * share], -1)


def draw_overlay(picture: np.ndarray, anomaly_map: np.ndarray, threshold: float) -> Image.Image:
    """The photograph in grey, whose own colours could be taken for heat, below its anomaly map.

    Args:
        picture: (H, W, 3), uint8 or float in 0..1.
        anomaly_map: (H, W) in 0..1.
        threshold: the middle of the colours, see `threshold_scale`.
    """
    grey = picture.mean(-1, keepdims=True) / (255 if picture.dtype == np.uint8 else 1)  # (H, W, 1)
    colors = heat(anomaly_map, threshold_scale(threshold))
    blended = grey * (1 - colors[..., 3:]) + colors[..., :3] * colors[..., 3:]
    return Image.fromarray(np.rint(blended * 255).astype(np.uint8))
