"""Abnormal matching: how similar a patch is to the nearest anomalous one, alone and with normal matching."""

from torch import Tensor

from ...normal_variation_eraser import nearest_cosine, unit
from ...scoring import cosine_distance
from .context import Query
from .normal_matching import normal_matching
from .registry import method


@method()
def abnormal_matching(query: Query) -> Tensor:
    """Similarity to the nearest anomalous patch."""
    return 1 - cosine_distance(nearest_cosine(query.patches, unit(query.context.anomalous)))


@method()
def both_matching(query: Query) -> Tensor:
    """The mean of normal and abnormal matching."""
    return (normal_matching(query) + abnormal_matching(query)) / 2
