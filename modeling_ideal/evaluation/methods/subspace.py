"""SubspaceAD (2026): what a PCA of the normal patches does not reconstruct.

Differs from the paper: the features are those of all methods here, not a mean of middle layers of a ViT-g at 672 px;
the normal references are not turned; the score is the length of what is left, not its square, so the ranks of patches
are the same.
"""

import torch
from torch import Tensor

from ...normal_variation_eraser import symmetric_eigen
from .context import Context, Query
from .registry import method

EXPLAINED_VARIANCE = 0.99  # share that the kept directions explain


@method()
def subspace(query: Query) -> Tensor:
    """Length of what the principal subspace of the normal patches does not reconstruct."""
    mean, basis = query.context.once(principal_subspace)
    centred = query.patches - mean
    return (centred - centred @ basis @ basis.T).norm(dim=-1)


def principal_subspace(context: Context) -> tuple[Tensor, Tensor]:
    """Mean (C,) of the normal patches, and the fewest principal directions (C, d) with `EXPLAINED_VARIANCE`."""
    mean = context.normals.mean(0)
    centred = context.normals - mean
    values, vectors = symmetric_eigen((centred.T @ centred)[None])  # ascending
    values, vectors = values[0].flip(0).clamp_min(0), vectors[0].flip(1)
    shares = values.cumsum(0) / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    return mean, vectors[:, : int((shares < EXPLAINED_VARIANCE).sum()) + 1]
