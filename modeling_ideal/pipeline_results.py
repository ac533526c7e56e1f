"""Results of the pipeline from scores and maps: verdict, mask, regions, type and overlay. Pure functions."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from .connected_regions import runs
from .references import IdealReferences
from .threshold import Calibration

DEFAULT_THRESHOLD = 0.5  # for references without calibration


def make_verdict(
    score: float,
    anomaly_map: np.ndarray,
    calibration: Calibration | None,
    *,
    defect_type: str | None = None,
    picture: np.ndarray | None = None,
    ignored: np.ndarray | None = None,
    threshold: float | None = None,
    return_mask: bool = False,
    return_regions: bool = False,
) -> dict[str, Any]:
    """Make the result of one image, as `AnomalyDetectionPipeline` returns it.

    The label decides: mask, regions and overlay show where an anomalous image is anomalous, and nothing in a normal
    one, even if its map reaches the threshold in fewer patches than the score is made of.

    Args:
        score: image score in 0..1.
        anomaly_map: (H, W) float32 in 0..1.
        calibration: gives the threshold and the confidence; None for the default threshold and no confidence.
        defect_type: the nearest type, if the references have types.
        picture: (H, W, 3) image to draw the overlay on; None for no overlay.
        ignored: (H, W) bool, pixels that are never anomalous, but not all; None for none.
        threshold: overrides the threshold of the calibration.
        return_mask: whether to add the mask.
        return_regions: whether to add the regions.
    """
    if not (math.isfinite(score) and np.isfinite(anomaly_map).all()):
        count = int((~np.isfinite(anomaly_map)).sum())
        raise ValueError(
            f"expected a finite score and map, got score {score:g} and {count} pixels that are NaN or infinite: the "
            "references or the weights are damaged, or their precision is too low"
        )
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
        result["confidence"] = calibration.confidence(score)
    if defect_type is not None:
        result["type"] = defect_type if anomalous else None
    if return_mask or return_regions or picture is not None:
        mask = anomalous_pixels(anomaly_map, threshold, ignored) if anomalous else np.zeros(anomaly_map.shape, bool)
        if return_mask:
            result["mask"] = mask
        if return_regions:
            result["regions"] = find_regions(mask, anomaly_map)
        if picture is not None:
            result["overlay"] = draw_overlay(picture, anomaly_map, mask, threshold)
    return result


def calibration_for(
    references: IdealReferences, top_fraction: float, counted: Tensor | None, threshold: float | None
) -> Calibration | None:
    """The calibration for a kind of scores, see `calibrated_for`; if the user gives the `threshold`, None may do."""
    try:
        return references.calibrated_for(top_fraction, counted)
    except ValueError:
        if threshold is None:
            raise
        return None


def anomalous_pixels(anomaly_map: np.ndarray, threshold: float, ignored: np.ndarray | None = None) -> np.ndarray:
    """Find where an anomalous image is anomalous: bool (H, W), never empty.

    That is where the map is at or above the threshold, or at or above half the height of its highest peak over its
    median, if that is lower: the score is that of a few patches, and interpolation and smoothing flatten their peak in
    the map, which may stay below the threshold.

    Args:
        anomaly_map: (H, W) finite values.
        threshold: the threshold of the image score.
        ignored: (H, W) bool, pixels that are never anomalous, but not all; None for none.
    """
    judged = anomaly_map if ignored is None else anomaly_map[~ignored]
    half_height = (float(judged.max()) + float(np.median(judged))) / 2
    mask = anomaly_map >= np.float64(min(threshold, half_height))  # a Python float would be rounded to float32
    return mask if ignored is None else mask & ~ignored


class Region(TypedDict):
    """One connected anomalous region."""

    box: tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels, without x1 and y1
    score: float  # highest value of the map in the region
    area: int  # number of pixels


def find_regions(mask: np.ndarray, anomaly_map: np.ndarray) -> list[Region]:
    """Find the connected regions of a mask (H, W), bool, with their scores in a map (H, W), highest first.

    Pixels that touch at a corner are connected.
    """
    if not mask.any():
        return []
    regions, rows, columns, lengths = runs(mask[None])
    areas = np.bincount(regions, lengths)
    scores = np.full(len(areas), -np.inf, anomaly_map.dtype)
    np.maximum.at(scores, regions, np.maximum.reduceat(anomaly_map[mask], lengths.cumsum() - lengths))
    low, high = np.full((2, len(areas)), max(mask.shape)), np.zeros((2, len(areas)), int)
    for side, (first, end) in enumerate(((columns, columns + lengths), (rows, rows + 1))):
        np.minimum.at(low[side], regions, first)
        np.maximum.at(high[side], regions, end)
    boxes = np.concatenate([low, high]).T.tolist()  # x0, y0, x1, y1 each
    return [
        {"box": tuple(boxes[index]), "score": float(scores[index]), "area": int(areas[index])}
        for index in np.argsort(-scores, kind="stable")
    ]


UNKNOWN = "unknown"
# Least mean cosine of an anomaly's patches to the nearest deviations of a type; below it, the type is unknown.
# It varies by product: with one reference per type, images of the same type have 0.2 to 0.9 (leather).
LEAST_SIMILARITY = 0.3


def type_similarities(deviations: Tensor, references: Tensor, types: Sequence[str]) -> dict[str, float]:
    """Similarity of an anomaly to each type, -1..1: the mean over its patches of the cosine to the nearest one.

    Each patch is compared with its nearest reference patch of the type, because the patches of one defect differ
    (its edge, its centre).

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
    """The type most similar to an anomaly, or `"unknown"` if none is; arguments as in `type_similarities`."""
    similarities = type_similarities(deviations, references, types)
    nearest = max(similarities, key=similarities.__getitem__)
    return nearest if similarities[nearest] >= LEAST_SIMILARITY else UNKNOWN


# From cold to hot: blue, cyan, green in the middle, yellow, and red at the hot end only.
COLORS = np.array([(0.12, 0.16, 0.55), (0.10, 0.62, 0.90), (0.38, 0.88, 0.42), (0.98, 0.76, 0.18), (0.78, 0.07, 0.05)])
OPACITY = 0.75  # at the hot end; the image stays visible below
NARROWEST = 1e-6  # half the width of a scale, for thresholds of 0 and 1
LEVELS = 4096  # of heat in an overlay: a colour is at most one in 255 beside that of `heat`
PIXELS_AT_ONCE = 32_768  # of an overlay: what is computed of them stays in the processor's cache


class Scale(NamedTuple):
    """The scores at the cold and the hot end of the colours."""

    low: float
    high: float


def threshold_scale(threshold: float) -> Scale:
    """The colour scale with a threshold in 0..1 at its middle, green; normal scores are on the cold side.

    The scale ends at half the threshold and at one and a half times the threshold, or closer if that exceeds 1.
    """
    half = max(min(threshold / 2, 1 - threshold), NARROWEST)
    return Scale(threshold - half, threshold + half)


def heat(scores: np.ndarray, scale: Scale) -> np.ndarray:
    """Colour scores of any shape (...): (..., 4), RGBA in 0..1, from transparent at the cold end to opaque.

    On a scale of no width, everything is cold.
    """
    share = _share(scores, scale)
    places = np.linspace(0, 1, len(COLORS))
    return np.stack([*(np.interp(share, places, channel) for channel in COLORS.T), OPACITY * share], -1)


def _share(scores: np.ndarray, scale: Scale) -> np.ndarray:
    """Where scores are between the cold end, 0, and the hot one, 1."""
    width = scale.high - scale.low
    return np.clip((scores - scale.low) / width, 0, 1) if width > 0 else np.zeros_like(scores)


@cache
def _levels() -> tuple[np.ndarray, np.ndarray]:
    """What each level of heat adds to a pixel in 0..255, (3, levels), and the share of grey it keeps, (levels,)."""
    *colors, opacity = heat(np.linspace(0, 1, LEVELS + 1), Scale(0, 1)).T.astype(np.float32)
    return np.stack(colors) * opacity * 255, 1 - opacity


def draw_overlay(picture: np.ndarray, anomaly_map: np.ndarray, mask: np.ndarray, threshold: float) -> Image.Image:
    """Draw an anomaly map over the image, which is shown in grey so that its colours are not mistaken for heat.

    The colours agree with the mask: its pixels are at least as hot as the threshold, all others at most.

    Args:
        picture: (H, W, 3), uint8 or float in 0..1.
        anomaly_map: (H, W) in 0..1.
        mask: (H, W) bool, the anomalous pixels.
        threshold: the score in the middle of the colours, see `threshold_scale`.
    """
    rows = max(1, PIXELS_AT_ONCE // picture.shape[1])
    drawn = np.empty(picture.shape, np.uint8)
    for start in range(0, len(picture), rows):
        part = slice(start, start + rows)
        _blend(picture[part], anomaly_map[part], mask[part], threshold, drawn[part])
    return Image.fromarray(drawn)


def _blend(
    picture: np.ndarray, anomaly_map: np.ndarray, mask: np.ndarray, threshold: float, drawn: np.ndarray
) -> None:
    """Fill some rows of an overlay, `drawn` (H, W, 3) uint8; other arguments as in `draw_overlay`."""
    limit = np.float64(threshold)  # a Python float would be rounded to float32
    shown = np.where(mask, np.maximum(anomaly_map, limit), np.minimum(anomaly_map, limit))
    level = np.rint(_share(shown, threshold_scale(threshold)) * LEVELS).astype(np.intp)
    added, kept = _levels()
    grey = _grey(picture) * kept[level]
    for channel, color in enumerate(added):
        drawn[..., channel] = np.rint(grey + color[level])


def _grey(picture: np.ndarray) -> np.ndarray:
    """The mean of the three channels in 0..255, (H, W) float32."""
    if picture.dtype != np.uint8:
        return picture.mean(-1, dtype=np.float32) * 255
    red, green, blue = np.moveaxis(picture, -1, 0)
    return (red.astype(np.uint16) + green + blue) / np.float32(3)  # `mean` takes several times as long
