"""Trials of calibration: thresholds from references alone, then the scores of test images they have not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor

from ...augmentation import altered_copies, altered_masks
from ...calibration import encode_pictures
from ...data.catalogue import Catalogue
from ...data.feature_cache import FeatureCache
from ...data.reference_sets import ReferenceSet, inference_episodes
from ...data.setups import Setup
from ...image_processing_ideal import IdealImageProcessor
from ...masks import patch_masks
from ...modeling_ideal import IdealModel
from ...reference_pictures import PictureGroup, ReferencePictures
from ...threshold import Calibration, ScorePrior
from ...training.encoder import BackboneEncoder
from ...turned_copies import turned_in_bank
from ..protocol.poses import Turn


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
        calibration = Calibration.from_scores(*scores, known.false_alarm, self.num_normal, prior, known.diversity)
        return replace(self, calibration=calibration)

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
    """Runs trials of a model on a data set, whose pictures and cached features it has.

    Args:
        model: the model.
        processor: of the model.
        pictures: columns image and mask of the records.
        catalogue: of the records.
        cache: the features of the records.
        turn: reads the features of normal references in other poses, if the model uses them.
    """

    model: IdealModel
    processor: IdealImageProcessor
    pictures: datasets.Dataset
    catalogue: Catalogue
    cache: FeatureCache
    turn: Turn | None = None
    _copies: dict[int, tuple[Tensor, Tensor | None]] = field(default_factory=dict)

    @torch.inference_mode()
    def run(self, references: ReferenceSet, false_alarm: float) -> Trial:
        """Calibrate on the references alone, then score the test images."""
        episodes = inference_episodes(self.catalogue, references, "general")
        normal, abnormal = self._group(episodes[0].normal, "normal"), self._group(episodes[0].abnormal, "abnormal")
        encoded = encode_pictures(self.model, ReferencePictures(normal, abnormal, false_alarm))
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

    def _group(self, indices: Sequence[int], kind: str) -> PictureGroup | None:
        """References as calibration takes them: features from the cache, altered copies from the picture."""
        if not indices:
            return None
        features = self.cache.features(indices).float().to(self.model.device)
        marked = turned = None
        if kind == "abnormal" and all(self.cache.has_mask(index) for index in indices):
            marked = self.cache.patch_masks(indices).to(self.model.device)
        if kind == "normal" and self.turn is not None:
            turned = turned_in_bank(self.turn(indices), features)
        group = PictureGroup(features, [self.cache.contents[index] for index in indices], marked, turned)
        if len(group.distinct()) > 1:
            return group
        copies, moved = self._altered(indices[0])
        return replace(group, copies=copies, marked_copies=None if marked is None else moved)

    def _altered(self, index: int) -> tuple[Tensor, Tensor | None]:
        """Features (n, h, w, C) of altered copies of a picture, and their patch masks; kept for other set-ups."""
        if index not in self._copies:
            row, patch_size = self.pictures[index], self.model.config.patch_size
            copies = altered_copies(self.processor(query=[row["image"]])["query"], patch_size)
            moved = None
            if row["mask"] is not None:
                mask = BackboneEncoder(self.model, self.processor).prepare_mask(row["mask"])[None]
                moved = patch_masks(altered_masks(mask, patch_size), patch_size).to(self.model.device)
            self._copies[index] = (self.model.extract_in_parts(copies), moved)
        return self._copies[index]
