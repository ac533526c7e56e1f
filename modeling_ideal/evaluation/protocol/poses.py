"""Normal references in other poses: encoded once into the feature cache, read from there."""

from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
from torch import Tensor

from ...data.catalogue import Catalogue
from ...data.feature_cache import encode_records
from ...data.reference_sets import ReferenceSet
from ...training.encoder import PoseEncoder

Turn = Callable[[Sequence[int]], Tensor]
"""Indices of L1 records to the features (L1, poses - 1, h, w, C) of their turned copies."""


def encode_poses(
    records: datasets.Dataset,
    catalogue: Catalogue,
    sets: Sequence[ReferenceSet],
    encoder: PoseEncoder,
    cache_folder: Path,
) -> Turn:
    """Encode the normal references of some sets in other poses; returns how to read them."""
    paths = {reference.path for references in sets for reference in references.normal}
    indices = [index for index, path in enumerate(catalogue.paths) if path in paths]
    cache = encode_records(records.select(indices), encoder, cache_folder, batch_size=1)
    places = {index: place for place, index in enumerate(indices)}

    def turn(normal: Sequence[int]) -> Tensor:
        strips = cache.features([places[index] for index in normal])  # (L1, (poses - 1) * h, w, C)
        return strips.unflatten(1, (encoder.poses - 1, -1)).to(encoder.model.device).float()

    return turn
