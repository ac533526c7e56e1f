"""Validation on held-out categories of the source, with the protocol of the evaluation; the target is never used."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from ...data.reference_sets import ReferenceSet, draw_references, inference_episodes
from ...image_processing_ideal import gaussian_smoothing
from ...metrics.percent import percent_metrics
from ...modeling_ideal import IdealModel
from ...scoring import image_scores, upsample
from ..rivals.reference_set import gather_references
from ..rivals.rival import Rival
from .batches import read_episode
from .objective import EpisodeTensors
from .source import Source

TOP_FRACTION = 0.01  # of the patch scores of a rival, whose mean is the image score, as in the evaluation
SMOOTHING = 4.0  # standard deviation in pixels for anomaly maps, as in the evaluation


def validation_sets(source: Source, setups: Sequence[str], seeds: Sequence[int]) -> list[ReferenceSet]:
    """One reference set per set-up, seed and held-out category.

    Raises ValueError, before any training, if a category has too few pictures.
    """
    sets = [part for setup in setups for seed in seeds for part in draw_references(source.catalogue, setup, seed)]
    for part in sets:
        inference_episodes(source.catalogue, part)
    return sets


def validate(model: IdealModel | Rival, source: Source, sets: Sequence[ReferenceSet]) -> dict[str, Any]:
    """Metrics in percent by set-up: of each held-out category, averaged over its reference sets, and their mean.

    Processes share the reference sets, and all return the same.
    """
    state = PartialState()
    training = model.training
    model.eval()
    share = [
        (part.setup, part.category, measure(model, source, part))
        for part in sets[state.process_index :: state.num_processes]
    ]
    model.train(training)
    figures = gather_object(share)
    return {
        setup: _average([part[1:] for part in figures if part[0] == setup])
        for setup in dict.fromkeys(part.setup for part in sets)
    }


def _average(figures: Sequence[tuple[str, dict[str, float]]]) -> dict[str, Any]:
    def mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    categories = {
        category: mean([row for other, row in figures if other == category])
        for category in sorted({category for category, _ in figures})
    }
    return {"mean": mean(list(categories.values())), "categories": categories}


@torch.no_grad()
def measure(model: IdealModel | Rival, source: Source, references: ReferenceSet) -> dict[str, float]:
    """Image and pixel metrics, in percent, over all queries of the category of a reference set."""
    episodes = inference_episodes(source.catalogue, references)
    score = scorer(model, read_episode(source.cache, episodes[0], 0, model.device))
    queries = [episode.query for episode in episodes]
    masks = source.cache.pixel_masks(queries)  # (n, H, W)
    scores, maps = [], []
    for query in queries:
        features = source.cache.features([query]).to(model.device).float()
        image_score, anomaly_map = score(features, (masks.shape[1], masks.shape[2]))
        scores.append(image_score.item())
        maps.append(gaussian_smoothing(anomaly_map, SMOOTHING).cpu())
    labels = [source.cache.labels[query] for query in queries]
    return percent_metrics(scores, labels, torch.cat(maps), masks)


def scorer(
    model: IdealModel | Rival, episode: EpisodeTensors
) -> Callable[[Tensor, tuple[int, int]], tuple[Tensor, Tensor]]:
    """From the features (1, h, w, C) of a query and a size to image score (1,) and map (1, H, W).

    The references are those of the episode, and are encoded once.
    """
    if isinstance(model, Rival):
        kept = model.encode(gather_references(episode.normal, episode.abnormal, episode.marked))

        def score(features: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
            patches = model.score(features[0], kept)[None]
            return image_scores(patches, TOP_FRACTION), upsample(patches, size)

        return score
    encoded = model.encode_features(*episode.references)

    def score_features(features: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        out = model.score_features(features, encoded, size)
        return out.scores, out.anomaly_maps

    return score_features
