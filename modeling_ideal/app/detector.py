"""The model that all sessions share, one call at a time; it keeps nothing of them."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ..pipeline_ideal import AnomalyDetectionPipeline
from ..pipeline_results import UNKNOWN
from ..references import IdealReferences
from ..threshold import Calibration
from .uploads import Picture


class Detector:
    """A pipeline for several users at once: references are given with each call.

    Args:
        pipe: the pipeline; references of its own are not used.
    """

    def __init__(self, pipe: AnomalyDetectionPipeline) -> None:
        self._pipe: Any = pipe  # whose results depend on its inputs
        self._lock = Lock()  # around the model, and around warnings, which belong to the process

    @property
    def model_name(self) -> str:
        """The name of the model, as a user gave it."""
        return str(self._pipe.model.name_or_path)

    def load(self, file: Path) -> IdealReferences:
        """Load a references file; ValueError if it is none, or made with another model."""
        return self._quietly(self._pipe.encode_references, references=file)

    def learn(self, known: IdealReferences | None, pictures: Sequence[Picture]) -> IdealReferences:
        """Encode pictures as references, or add them to known ones, which are not encoded again.

        Defects are marked in every picture of a defective part or in none, as the pipeline demands. If only some have
        a type, that of the others is unknown.
        """
        normal = [picture for picture in pictures if not picture.defective]
        abnormal = [picture for picture in pictures if picture.defective]
        given: dict[str, Any] = {}
        if normal:
            given["normal"] = [picture.file for picture in normal]
        if abnormal:
            given["abnormal"] = [picture.file for picture in abnormal]
            given |= {"masks": masks_of(known, abnormal), "types": types_of(known, abnormal)}
        if known is None:
            return self._quietly(self._pipe.encode_references, **given)
        return self._quietly(self._pipe.extend_references, known, **given)

    def calibration(self, references: IdealReferences) -> Calibration | None:
        """The calibration for the scores that `judge` gives; None if the references have none."""
        return self._quietly(references.calibrated_for, self._pipe.model.config.top_fraction)

    def judge(self, references: IdealReferences, picture: Picture) -> tuple[float, np.ndarray, str | None]:
        """Score, map (H, W) and nearest type of a picture, whatever the threshold."""
        # At the threshold 0 every picture is anomalous, and so has the type that it would have.
        result = self._quietly(self._pipe, str(picture.file), references=references, threshold=0.0)
        return result["score"], result["anomaly_map"], result.get("type")

    def _quietly(self, call: Any, *arguments: Any, **given: Any) -> Any:
        """Call without warnings: the page shows those of the references."""
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return call(*arguments, **given)


def masks_of(known: IdealReferences | None, abnormal: Sequence[Picture]) -> list[np.ndarray] | None:
    """The masks of defective parts, or None if no defect is marked; ValueError if only some are."""
    marked = [picture for picture in abnormal if picture.mask is not None]
    expected = known is not None and known.mask_source == "given"
    others = known is not None and known.mask_source == "estimated"
    if not marked and not expected:
        return None
    if len(marked) < len(abnormal) or others:
        without = "those of the references" if others else next(p.name for p in abnormal if p.mask is None)
        raise ValueError(f"expected the defect marked in every defective picture or in none, got {without} unmarked")
    return [mask for picture in abnormal if (mask := picture.full_mask()) is not None]


def types_of(known: IdealReferences | None, abnormal: Sequence[Picture]) -> list[str] | None:
    """The types of defects, or None if none has one."""
    if not any(picture.defect_type for picture in abnormal) and not (known is not None and known.types):
        return None
    return [picture.defect_type or UNKNOWN for picture in abnormal]
