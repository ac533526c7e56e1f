"""Verdicts at any threshold from scores and maps that are kept, without the model. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ..pipeline_results import make_verdict
from ..threshold import Calibration
from .uploads import Picture, reduced

SMALL_SIDE = 320  # pixels of the pictures in an overview, which change while the threshold is moved


@dataclass(frozen=True, eq=False)
class Judged:
    """A picture with its score.

    Args:
        picture: the picture.
        score: 0..1.
        anomaly_map: (h, w) float32, at the size of `picture.shown`.
        defect_type: the nearest type, if the references have types.
        small: the picture (h, w, 3), uint8, for the overview.
        small_map: the map at the size of `small`.
    """

    picture: Picture
    score: float
    anomaly_map: np.ndarray
    defect_type: str | None
    small: np.ndarray
    small_map: np.ndarray


def keep(picture: Picture, score: float, anomaly_map: np.ndarray, defect_type: str | None) -> Judged:
    """Keep what the model says of a picture, its map (H, W) reduced to what is shown."""
    kept = reduced_map(anomaly_map, picture.shown.shape[:2])
    small = reduced(picture.shown, SMALL_SIDE)
    return Judged(picture, score, kept, defect_type, small, reduced_map(kept, small.shape[:2]))


def reduced_map(anomaly_map: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """A map (H, W) at another size (h, w), each pixel the mean of those that it covers."""
    if anomaly_map.shape == tuple(size):
        return anomaly_map
    return np.asarray(Image.fromarray(anomaly_map).resize((size[1], size[0]), Image.Resampling.BOX))


def verdict(judged: Judged, calibration: Calibration | None, threshold: float) -> dict[str, Any]:
    """The result of a picture as the pipeline gives it, with regions and overlay.

    The overlay is at the size of `picture.shown`. So are the regions found, and brought to pixels of the picture: up
    to `LONGEST_SIDE` they are those of the pipeline, above it they are rounded.
    """
    shown = judged.picture.shown
    result = make_verdict(
        judged.score,
        judged.anomaly_map,
        calibration,
        defect_type=judged.defect_type,
        picture=shown,
        threshold=threshold,
        return_regions=True,
    )
    down, across = (full / kept for full, kept in zip(judged.picture.size, shown.shape, strict=False))
    for region in result["regions"]:
        x0, y0, x1, y1 = region["box"]
        region["box"] = (round(x0 * across), round(y0 * down), round(x1 * across), round(y1 * down))
        region["area"] = round(region["area"] * across * down)
    return result


def small_overlay(judged: Judged, threshold: float) -> Image.Image:
    """The overlay of the overview."""
    result = make_verdict(judged.score, judged.small_map, None, picture=judged.small, threshold=threshold)
    return result["overlay"]


def suspicious_mask(judged: Judged, threshold: float) -> np.ndarray:
    """Where a picture would be anomalous if its score were above the threshold: bool, of the size of the map."""
    return make_verdict(1.0, judged.anomaly_map, None, threshold=threshold, return_mask=True)["mask"]


def is_anomalous(judged: Judged, threshold: float) -> bool:
    """Whether a picture is anomalous at a threshold."""
    return judged.score >= threshold
