"""The length of a deviation, relative to that of the feature: needs normal references alone."""

import torch
from torch import Tensor

from .context import Query
from .registry import method


@method()
def residual_length(query: Query) -> Tensor:
    """Relative length of the residual deviation."""
    return _relative_length(query.deviations.residual, query.patches)


@method()
def nve_length(query: Query) -> Tensor:
    """Relative length of the denoised deviation."""
    return _relative_length(query.deviations.denoised, query.patches)


def _relative_length(vectors: Tensor, patches: Tensor) -> Tensor:
    """|v| / |p| of vectors and patches (N, C): (N,)."""
    return vectors.norm(dim=-1) / patches.norm(dim=-1).clamp_min(torch.finfo(patches.dtype).tiny)
