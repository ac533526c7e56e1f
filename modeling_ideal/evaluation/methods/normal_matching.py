"""Normal matching: how far a patch is from the nearest normal one (AnomalyDINO)."""

import torch
from torch import Tensor

from ...normal_variation_eraser import nearest_cosine, unit
from ...scoring import cosine_distance
from .context import Context, Query
from .registry import method

POSES = 8  # of a normal reference, turned by equal angles


@method()
def normal_matching(query: Query) -> Tensor:
    """Cosine distance to the nearest normal patch (AnomalyDINO without rotations)."""
    return cosine_distance(query.deviations.nearest_cosine)


@method()
def shared_normal_matching(query: Query) -> Tensor:
    """Normal matching with the unmarked patches of the abnormal references among the normal ones."""
    return normal_matching(query.shared)


@method(in_poses=True)
def rotated_normal_matching(query: Query) -> Tensor:
    """Normal matching with eight rotations of every normal reference (AnomalyDINO)."""
    return cosine_distance(nearest_cosine(query.patches, query.context.once(rotated_directions)))


def rotated_directions(context: Context) -> Tensor:
    """Patches of the normal references in all poses at length 1: (any, C)."""
    if context.turn is None:
        raise ValueError("expected features of normal references in other poses for this method, got none")
    return torch.cat([context.directions, unit(context.turn().flatten(0, 3))])
