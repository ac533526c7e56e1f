"""Deviation matching: how a patch deviates from normal ones, compared with how the anomalous references deviate."""

from torch import Tensor

from ...normal_variation_eraser import nearest_cosine, unit
from ...scoring import cosine_distance
from .context import Query
from .normal_matching import normal_matching
from .registry import method


@method()
def residual_matching(query: Query) -> Tensor:
    """The mean of normal matching and the similarity to the nearest residual of an anomalous patch (no eraser)."""
    return (_similarity(query.deviations.residual, query.context.residual) + normal_matching(query)) / 2


@method()
def nve_matching(query: Query) -> Tensor:
    """The same with denoised deviations: the Normal Variation Eraser without the encoder."""
    return (_similarity(query.deviations.denoised, query.context.denoised) + normal_matching(query)) / 2


@method()
def shared_nve_matching(query: Query) -> Tensor:
    """`nve_matching` with the unmarked patches of the abnormal references among the normal ones."""
    return nve_matching(query.shared)


def _similarity(deviations: Tensor, known: Tensor) -> Tensor:
    """In 0..1, of deviations (N, C) to the nearest of the known ones (A, C): (N,)."""
    return 1 - cosine_distance(nearest_cosine(deviations, unit(known)))
