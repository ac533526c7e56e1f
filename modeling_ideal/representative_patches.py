"""Selection of a few patches that represent many. Pure functions."""

import torch
from torch import Tensor

from .matrix_products import inner_products
from .normal_variation_eraser import unit

SELECTED_AT_ONCE = 256  # before all patches are compared with the new ones
CANDIDATES = 4  # for each patch to be selected


def representative_patches(patches: Tensor, count: int) -> Tensor:
    """Select patches such that none is far from a selected one, in the manner of farthest-point sampling.

    Differs from it by selecting many at a time: the patches that are least similar to all selected ones are the
    candidates, among which one after the other is selected, and only then all patches are compared with these.

    Args:
        patches: (P, C).
        count: number of patches to select, at least 1; if there are no more, all are selected.

    Returns:
        Indices of the selected patches, without repetition, ascending.
    """
    if count >= len(patches):
        return torch.arange(len(patches), device=patches.device)
    directions = unit(patches)
    chosen = (directions @ unit(directions.mean(0))).argmin()[None]  # the least common one
    nearest = (directions @ directions[chosen].T)[:, 0]  # of each patch to the selected ones
    nearest[chosen] = torch.inf
    while len(chosen) < count:
        number = min(len(chosen), SELECTED_AT_ONCE, count - len(chosen))
        candidates = nearest.topk(min(CANDIDATES * number, len(patches)), largest=False).indices
        added = candidates[_farthest(directions[candidates], nearest[candidates], number)]
        nearest = torch.maximum(nearest, inner_products(directions, directions[added]).amax(1))
        nearest[added] = torch.inf
        chosen = torch.cat([chosen, added])
    return chosen.sort().values


def _farthest(directions: Tensor, nearest: Tensor, number: int) -> list[int]:
    """Select `number` of the directions (P, C), each the least similar to those before it.

    Args:
        directions: (P, C), of length 1.
        nearest: (P,) similarity of each to the nearest one selected before.
        number: how many to select.
    """
    similarities = inner_products(directions, directions).cpu()
    nearest, chosen = nearest.cpu(), []
    for _ in range(number):
        chosen.append(int(nearest.argmin()))
        nearest = torch.maximum(nearest, similarities[chosen[-1]])
        nearest[chosen[-1]] = torch.inf
    return chosen
