"""PatchCore's memory (Roth et al., 2022): the distance to the nearest of a few normal patches that stand for all.

Differs from the paper: the features are those of all methods here, not those of two stages of a ResNet averaged over
neighbours; the coreset is chosen among the features themselves, not among random projections of them, and starts at
the patch nearest the mean, not at the farthest one; the image score is that of all methods, without PatchCore's own
weights.
"""

import torch
from torch import Tensor

from .context import Context, Query
from .registry import method

CORESET_SHARE = 0.1  # of the normal patches


@method()
def coreset(query: Query) -> Tensor:
    """Distance to the nearest patch of the coreset."""
    return torch.cdist(query.patches, query.context.once(normal_coreset)).amin(1)


def normal_coreset(context: Context) -> Tensor:
    """(K, C) of the normal patches."""
    return select_coreset(context.normals)


def select_coreset(features: Tensor) -> Tensor:
    """Greedy k-center: the patches (K, C) of (Q, C) that leave no other far away, from the one nearest the mean."""
    count = max(1, int(len(features) * CORESET_SHARE))
    chosen = [int((features - features.mean(0)).norm(dim=-1).argmin())]
    distances = (features - features[chosen[0]]).norm(dim=-1)
    for _ in range(count - 1):
        chosen.append(int(distances.argmax()))
        distances = torch.minimum(distances, (features - features[chosen[-1]]).norm(dim=-1))
    return features[chosen]
