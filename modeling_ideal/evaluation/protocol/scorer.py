"""Patch scores and anomaly maps of every method, for the queries of one reference set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from ...data.catalogue import Catalogue
from ...data.feature_cache import FeatureCache
from ...data.setups import SETTINGS
from ...image_processing_ideal import gaussian_smoothing
from ...modeling_ideal import IdealModel
from ...normal_variation_eraser import Deviations
from ...references import IdealReferences
from ...scoring import image_scores, smooth_patches, upsample
from ..methods import METHODS, Method
from ..methods.context import Context, Query
from ..rival_method import RivalMethod
from .poses import Turn


@dataclass(frozen=True)
class Scorer:
    """Scores the records of a target by several methods, all on the same cached features.

    Args:
        cache: features and masks of the target's records.
        catalogue: of the same records.
        methods: keys of `METHODS`, of `heads` or of `rivals`.
        model: gives methods without a head the settings of the eraser and of the score.
        heads: trained models as methods, by name; all on the backbone that filled the cache.
        turn: encodes references in other poses, for the methods that match them.
        smoothing: standard deviation in pixels of the Gaussian over anomaly maps before pixel metrics; 0 for none.
        settings: `"general"`, `"hard"`; a setting that a category does not allow is left out there.
        rivals: trained rivals as methods, by name; all for the features in the cache.
    """

    cache: FeatureCache
    catalogue: Catalogue
    methods: Sequence[str]
    model: IdealModel
    heads: Mapping[str, IdealModel] = field(default_factory=dict)
    turn: Turn | None = None
    smoothing: float = 4.0
    settings: Sequence[str] = SETTINGS
    rivals: Mapping[str, RivalMethod] = field(default_factory=dict)

    def context(self, normal: Sequence[int], abnormal: Sequence[int]) -> Context:
        """The references with these indices, as all methods take them."""
        cache = self.cache
        masked = abnormal and all(cache.has_mask(index) for index in abnormal)
        return Context(
            normal=self.features(normal) if normal else None,
            abnormal=self.features(abnormal) if abnormal else None,
            marked=cache.patch_masks(abnormal).to(self.model.device) if masked else None,
            turn=partial(self.turn, normal) if self.turn is not None and normal else None,
            eraser=self.model.config.eraser,
        )

    def features(self, indices: Sequence[int]) -> Tensor:
        """Cached patch features (n, h, w, C) of records, float32, on the device of the model."""
        return self.cache.features(indices).to(self.model.device).float()

    def patch_scores(self, context: Context, queries: Sequence[int]) -> dict[str, Tensor]:
        """(n, h, w) of every method, on the CPU; queries are read one at a time, so memory stays small."""
        encoded = {name: encode_context(self.heads[name], context) for name in self.methods if name in self.heads}
        known: dict[str, Method] = {**METHODS, **self.rivals}
        scores: dict[str, list[Tensor]] = {name: [] for name in self.methods}
        for index in queries:
            features = self.features([index])  # (1, h, w, C)
            query = Query(features[0].flatten(0, 1), context, (features.shape[1], features.shape[2]))
            shared: dict[tuple, Deviations] = {}
            for name in self.methods:
                if name in encoded:
                    deviations = _deviations(self.heads[name], encoded[name], query, shared)
                    output = self.heads[name].score_features(features, encoded[name], (1, 1), deviations=deviations)
                    scores[name].append(output.patch_scores[0])
                else:
                    scores[name].append(known[name](query).view(features.shape[1:3]))
        smoothing = self.model.config.patch_smoothing  # a trained head applies its own
        return {
            name: (torch.stack(parts) if name in encoded else smooth_patches(torch.stack(parts), smoothing)).cpu()
            for name, parts in scores.items()
        }

    def image_scores(self, name: str, patch_scores: Tensor) -> Tensor:
        """Patch scores (n, h, w) of a method to image scores (n,)."""
        return image_scores(patch_scores, self.heads.get(name, self.model).config.top_fraction)

    def anomaly_maps(self, patch_scores: Tensor, size: tuple[int, int]) -> Tensor:
        """Patch scores (n, h, w) to smoothed maps (n, H, W) of `size`, which the pixel metrics are computed from."""
        maps = upsample(patch_scores, size)
        return gaussian_smoothing(maps, self.smoothing) if self.smoothing else maps


def encode_context(model: IdealModel, context: Context) -> IdealReferences:
    """The references as a model keeps them."""
    turned = context.turned if model.config.num_rotations > 1 else None
    features = (context.normal, context.abnormal, context.marked, turned)
    return model.encode_features(*(None if part is None else part[None] for part in features))


def _deviations(
    head: IdealModel, references: IdealReferences, query: Query, shared: dict[tuple, Deviations]
) -> list[Deviations] | None:
    """The deviations of a query from the normal patches of a head, computed once for all that have the same ones.

    `shared` keeps those of heads with other settings than the methods without a head. None if they are not needed.
    """
    if not references.abnormal_deviations:
        return None
    config = head.config
    if config.eraser == query.context.eraser and config.num_rotations == 1:
        return [(query.shared if config.share_normals else query).deviations]
    key = (config.eraser, config.share_normals, config.num_rotations)
    if key not in shared:
        shared[key] = head.deviations(query.patches, *references.normals(0))
    return [shared[key]]
