"""One unit of an evaluation: all methods on one category with one reference set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...data.catalogue import Catalogue
from ...data.feature_cache import FeatureCache
from ...data.reference_sets import ReferenceSet, applicable_settings, inference_episodes
from ...image_processing_ideal import gaussian_smoothing
from ...metrics import image_metrics, pixel_metrics, released_pro
from ...modeling_ideal import IdealModel
from ...references import IdealReferences
from ...scoring import image_scores, smooth_patches, upsample
from ..methods.context import METHODS, Context, Query

IDEAL = "ideal"  # the method that is the model itself

Rotate = Callable[[Sequence[int]], Tensor]
"""Indices of L1 records to the features (L1 * turns, h, w, C) of their rotated copies."""


@dataclass(frozen=True)
class Workbench:
    """What all units of an evaluation share.

    Args:
        cache: features and masks of the target's records.
        catalogue: of the same records.
        methods: keys of `METHODS`, or of `heads`.
        model: gives the settings of the eraser and the share of patches in an image score.
        heads: trained models as methods, by name; all on the backbone that filled the cache.
        rotate: for the methods that match rotated references.
        smoothing: standard deviation in pixels of the Gaussian over anomaly maps before pixel metrics.
        settings: `"general"`, `"hard"`; one that a category does not allow is left out there.
    """

    cache: FeatureCache
    catalogue: Catalogue
    methods: Sequence[str]
    model: IdealModel
    heads: Mapping[str, IdealModel] = field(default_factory=dict)
    rotate: Rotate | None = None
    smoothing: float = 4.0
    settings: Sequence[str] = field(default=("general", "hard"))


Figures = dict[str, float]


@torch.inference_mode()
def evaluate_unit(bench: Workbench, references: ReferenceSet) -> dict:
    """Percentages of every method and setting, and the task's difficulty.

    Returns:
        `{"settings": {setting: {method: figures}}, "difficulty": cosine or None, "queries": {setting: count}}`.
    """
    episodes = inference_episodes(bench.catalogue, references, "general")
    queries = [episode.query for episode in episodes]
    context = reference_context(bench, episodes[0].normal, episodes[0].abnormal)
    scores = query_scores(bench, context, queries)
    masks = bench.cache.pixel_masks(queries)
    labels = torch.tensor([bench.cache.labels[query] for query in queries])
    chosen = {}  # places of a setting's queries among all
    for setting in applicable_settings(bench.catalogue, references):
        if setting in bench.settings:
            kept = {episode.query for episode in inference_episodes(bench.catalogue, references, setting)}
            chosen[setting] = torch.tensor([place for place, query in enumerate(queries) if query in kept])
    figures: dict[str, dict[str, Figures]] = {setting: {} for setting in chosen}
    for name, values in scores.items():
        maps = anomaly_maps(bench, values, (masks.shape[1], masks.shape[2]))
        for setting, places in chosen.items():
            parts = (values[places], maps[places], masks[places], labels[places])
            figures[setting][name] = _figures(bench, *parts)
    return {
        "settings": figures,
        "queries": {setting: len(places) for setting, places in chosen.items()},
        "difficulty": task_difficulty(bench, references, queries, context),
    }


def task_difficulty(
    bench: Workbench, references: ReferenceSet, queries: Sequence[int], context: Context
) -> float | None:
    """The paper's Table 2: how alike the deviations of the references and of anomalous queries of other types are.

    A deviation is the mean patch feature inside the anomaly mask less the mean normal reference feature; the
    result is the mean cosine. None where it is not defined: without masks, without another type.
    """
    others = [
        query
        for query in queries
        if bench.cache.labels[query]
        and bench.cache.has_mask(query)
        and bench.catalogue.anomaly_types[query] != references.anomaly_type
    ]
    if context.normal is None or context.abnormal is None or context.marked is None or not others:
        return None
    centre = context.normal.flatten(0, 2).mean(0)
    known = context.abnormal[context.marked].mean(0) - centre
    found = torch.stack(
        [bench.cache.features([query])[0].float()[bench.cache.patch_masks([query])[0]].mean(0) for query in others]
    )
    return torch.cosine_similarity(found - centre, known[None]).mean().item()


def reference_context(bench: Workbench, normal: Sequence[int], abnormal: Sequence[int]) -> Context:
    """The references with these indices, as all methods take them."""
    cache = bench.cache
    marked = cache.patch_masks(abnormal) if abnormal and all(cache.has_mask(index) for index in abnormal) else None
    turned = bench.rotate if "rotated_normal_matching" in bench.methods else None
    rotated = turned(normal) if turned is not None and normal else None
    return Context(
        normal=cache.features(normal).float() if normal else None,
        abnormal=cache.features(abnormal).float() if abnormal else None,
        marked=marked,
        rotated=rotated,
        eraser=bench.model.config.eraser,
    )


def encode_context(model: IdealModel, context: Context) -> IdealReferences:
    """The references as a model keeps them."""
    parts = (context.normal, context.abnormal, context.marked)
    return model.encode_features(*(None if part is None else part[None] for part in parts))


def query_scores(bench: Workbench, context: Context, queries: Sequence[int]) -> dict[str, Tensor]:
    """(n, h, w) patch scores of every method; queries are read one at a time, so memory stays small."""
    encoded = {name: encode_context(bench.heads[name], context) for name in bench.methods if name in bench.heads}
    scores: dict[str, list[Tensor]] = {name: [] for name in bench.methods}
    for index in queries:
        features = bench.cache.features([index]).float()  # (1, h, w, C)
        query = Query(features[0].flatten(0, 1), context)
        for name in bench.methods:
            if name in encoded:
                head = bench.heads[name]
                own = query.shared if head.config.share_normals else query
                known = [own.deviations] if head.config.eraser == context.eraser else None
                output = head.score_features(features, encoded[name], (1, 1), deviations=known)
                scores[name].append(output.patch_scores[0])
            else:
                scores[name].append(METHODS[name](query).view(features.shape[1:3]))
    smoothing = bench.model.config.patch_smoothing  # the same for all, whether a method brings it along or not
    return {
        name: torch.stack(parts) if name in encoded else smooth_patches(torch.stack(parts), smoothing)
        for name, parts in scores.items()
    }


def anomaly_maps(bench: Workbench, scores: Tensor, size: tuple[int, int]) -> Tensor:
    """Patch scores (n, h, w) to smoothed maps (n, H, W) of `size`: what pixel metrics see."""
    maps = upsample(scores, size)
    return gaussian_smoothing(maps, bench.smoothing) if bench.smoothing else maps


def _figures(bench: Workbench, scores: Tensor, maps: Tensor, masks: Tensor, labels: Tensor) -> Figures:
    """Percentages from patch scores (n, h, w), maps and masks (n, H, W) and labels (n,)."""
    images = image_metrics(image_scores(scores, bench.model.config.top_fraction), labels)
    pixels = pixel_metrics(maps, masks)
    pixels["pro_as_released"] = released_pro(maps, masks)
    return {
        **{f"image_{name}": 100 * value for name, value in images.items()},
        **{f"pixel_{name}": 100 * value for name, value in pixels.items()},
    }
