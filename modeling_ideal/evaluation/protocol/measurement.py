"""The metrics of every method with one reference set, and how difficult the task is."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import torch
from torch import Tensor

from ...data.reference_sets import ReferenceSet, applicable_settings, inference_episodes
from ...metrics import released_pro
from ...metrics.image import rank_images
from ...metrics.percent import ranked_percent_metrics
from ...metrics.pixel import rank_pixels
from ...metrics.ranking import Ranking
from ..methods.context import Context
from ..results_file import Metrics
from .scorer import Scorer


class Scores(TypedDict):
    """The image scores of the queries, by path."""

    normal: dict[str, float]
    anomalous: dict[str, float]


class Measurement(TypedDict):
    """The result of one method with one reference set, as it is stored on disk."""

    settings: dict[str, Metrics]  # by setting
    scores: dict[str, Scores]  # by setting
    difficulty: float | None  # of the task, the same for all methods


def read_measurement(path: Path) -> Measurement | None:
    """A stored measurement; None if there is none, or if the file is damaged, so that it is measured again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = isinstance(content, dict) and set(content) == Measurement.__required_keys__
    return cast(Measurement, content) if whole else None


class Rankings(NamedTuple):
    """The queries of a setting as a method ranks them, from which metrics and curves are computed."""

    images: Ranking
    pixels: Ranking


Observer = Callable[[str, Sequence[int], Tensor, Tensor, Mapping[str, Rankings]], None]
"""Takes the name of a method, the queries (n), their scores (n,), anomaly maps (n, H, W), and rankings by setting."""


@torch.inference_mode()
def measure(scorer: Scorer, references: ReferenceSet, observer: Observer | None = None) -> dict[str, Measurement]:
    """Score all queries of a reference set's category: `{method: measurement}`; the observer sees the scores too."""
    episodes = inference_episodes(scorer.catalogue, references, "general")
    queries = [episode.query for episode in episodes]
    context = scorer.context(episodes[0].normal, episodes[0].abnormal)
    masks = scorer.cache.pixel_masks(queries)
    labels = torch.tensor([scorer.cache.labels[query] for query in queries])
    places = _places_by_setting(scorer, references, queries)
    paths = [scorer.catalogue.paths[query] for query in queries]
    measured: dict[str, Measurement] = {}
    difficulty = task_difficulty(scorer, references, queries, context)
    for name, patch_scores in scorer.patch_scores(context, queries).items():  # one at a time: its maps are large
        scores = scorer.image_scores(name, patch_scores)
        maps = scorer.anomaly_maps(patch_scores, (masks.shape[1], masks.shape[2]))
        settings: dict[str, Metrics] = {}
        rankings = {}
        for setting, chosen in places.items():
            kept, marked = maps[chosen], masks[chosen]
            found = Rankings(rank_images(scores[chosen], labels[chosen]), rank_pixels(kept, marked))
            released = {"pixel_pro_as_released": 100 * released_pro(kept, marked)}
            settings[setting], rankings[setting] = {**ranked_percent_metrics(*found), **released}, found
        measured[name] = {
            "settings": settings,
            "scores": {
                setting: _scores(scores[chosen], labels[chosen], [paths[place] for place in chosen.tolist()])
                for setting, chosen in places.items()
            },
            "difficulty": difficulty,
        }
        if observer is not None:
            observer(name, queries, scores, maps, rankings)
    return measured


def task_difficulty(
    scorer: Scorer, references: ReferenceSet, queries: Sequence[int], context: Context
) -> float | None:
    """How similar the deviations of the references and of anomalous queries of other types are (the paper's Table 2).

    A deviation is the mean patch feature inside the anomaly mask less the mean normal reference feature; the
    result is the mean cosine. None where it is undefined: without masks, or without another type.
    """
    cache = scorer.cache
    others = [
        query
        for query in queries
        if cache.labels[query]
        and cache.has_mask(query)
        and scorer.catalogue.anomaly_types[query] != references.anomaly_type
    ]
    if context.normal is None or context.abnormal is None or context.marked is None or not others:
        return None
    centre = context.normal.flatten(0, 2).mean(0)
    known = context.abnormal[context.marked].mean(0) - centre
    found = torch.stack([scorer.features([query])[0][cache.patch_masks([query])[0]].mean(0) for query in others])
    return torch.cosine_similarity(found - centre, known[None]).mean().item()


def _places_by_setting(scorer: Scorer, references: ReferenceSet, queries: Sequence[int]) -> dict[str, Tensor]:
    """The positions of the queries of each setting among all queries."""
    places = {}
    for setting in applicable_settings(scorer.catalogue, references):
        if setting in scorer.settings:
            kept = {episode.query for episode in inference_episodes(scorer.catalogue, references, setting)}
            places[setting] = torch.tensor([place for place, query in enumerate(queries) if query in kept])
    return places


def _scores(scores: Tensor, labels: Tensor, paths: Sequence[str]) -> Scores:
    """Image scores (n,) by path, those with label 0 and those with label 1."""
    of_all = list(zip(paths, scores.tolist(), labels.tolist(), strict=True))
    return {
        "normal": {path: score for path, score, label in of_all if not label},
        "anomalous": {path: score for path, score, label in of_all if label},
    }
