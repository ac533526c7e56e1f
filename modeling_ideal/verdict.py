"""From a score and an anomaly map to what a person is told. Pure function."""

from typing import Any

import numpy as np

from .overlay import draw_overlay
from .references import IdealReferences
from .regions import find_regions

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
