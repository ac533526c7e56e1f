"""Trials of calibration: thresholds from references alone, then the scores of test images they have not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import datasets
import numpy as np
import torch

from ...calibration import encode_calibrated
from ...data.catalogue import Catalogue
from ...data.feature_cache import FeatureCache
from ...data.reference_sets import ReferenceSet, inference_episodes
from ...data.setups import Setup
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...references import IdealReferences
from ...threshold import Calibration, ScorePrior


@dataclass(frozen=True)
class Trial:
    """One category, calibrated on one reference set, and the scores of its test images.

    Args:
        category: the category.
        setup: numbers of normal and abnormal references, for example "N4A1".
        seed: of the reference set.
        calibration: from the references alone.
        scores: of the test images.
        labels: of the test images, 0 or 1.
    """

    category: str
    setup: str
    seed: int
    calibration: Calibration
    scores: tuple[float, ...]
    labels: tuple[int, ...]

    @property
    def good(self) -> np.ndarray:
        """Scores of the normal test images."""
        return np.array(self.scores)[np.array(self.labels) == 0]

    @property
    def bad(self) -> np.ndarray:
        """Scores of the anomalous test images."""
        return np.array(self.scores)[np.array(self.labels) == 1]

    @property
    def num_normal(self) -> int:
        """Number of normal references."""
        return Setup.parse(self.setup).num_normal

    def with_prior(self, prior: ScorePrior) -> "Trial":
        """The same scores, calibrated with another prior."""
        known = self.calibration
        scores = (known.normal_scores, known.abnormal_scores)
        return replace(self, calibration=Calibration.from_scores(*scores, known.false_alarm, self.num_normal, prior))

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
        return asdict(self) | {"calibration": self.calibration.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Trial":
        """Make a trial from the result of `to_dict`."""
        lists = {name: tuple(values[name]) for name in ("scores", "labels")}
        return cls(**{**values, **lists, "calibration": Calibration.from_dict(values["calibration"])})


@dataclass(frozen=True)
class Trials:
    """Runs trials of a model on a data set, whose pictures and cached features it has."""

    model: IdealModel
    processor: IdealImageProcessor
    pictures: datasets.Dataset
    catalogue: Catalogue
    cache: FeatureCache

    @torch.inference_mode()
    def run(self, references: ReferenceSet, false_alarm: float) -> Trial:
        """Calibrate on the references alone, then score the test images."""
        episodes = inference_episodes(self.catalogue, references, "general")
        encoded = self._encode(episodes[0].normal, episodes[0].abnormal, false_alarm)
        scores = []
        for episode in episodes:
            features = self.cache.features([episode.query]).float().to(self.model.device)
            scores.append(self.model.score_features(features, encoded, (1, 1)).scores.item())
        labels = tuple(self.cache.labels[episode.query] for episode in episodes)
        if encoded.calibration is None:
            raise RuntimeError("expected calibrated references")
        return Trial(
            references.category, references.setup, references.seed, encoded.calibration, tuple(scores), labels
        )

    def _encode(self, normal: Sequence[int], abnormal: Sequence[int], false_alarm: float) -> IdealReferences:
        """From pictures, not cached features: altered copies of a single reference need the picture."""
        masked = abnormal and all(self.cache.has_mask(index) for index in abnormal)
        inputs = self.processor(
            normal_refs=[self.pictures[index]["image"] for index in normal],
            abnormal_refs=[self.pictures[index]["image"] for index in abnormal] or None,
            masks=[self.pictures[index]["mask"] for index in abnormal] if masked else None,
        )
        return encode_calibrated(self.model, **inputs, false_alarm=false_alarm)
