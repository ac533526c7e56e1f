"""Which patches of the abnormal references are anomalous, and how they deviate from the normal ones."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .intrinsic_deviation_encoder import sinusoidal_positions
from .normal_variation_eraser import Deviations, nearest_normals, unit

PSEUDO_MASK_FRACTION = 0.01  # patches taken as anomalous in an abnormal reference without a mask

Erase = Callable[[Tensor, Tensor, Tensor], Deviations]  # patches, normals, normal directions


class AnomalousPatches(NamedTuple):
    """One reference set, ready for the Intrinsic Deviation Encoder."""

    normals: Tensor  # (Q, C) normal patches
    features: Tensor  # (A, C) anomalous patches
    positions: Tensor  # (A, C) where they are
    deviations: Tensor  # (A, C) their denoised deviations
    sources: Tensor  # (A,) which of the abnormal references each is of


def pick(sets: Any, index: int) -> Any:
    """The set of query `index`: its own, or the one that all share; None if there are none."""
    return sets if sets is None else sets[index if len(sets) > 1 else 0]


def normal_banks(normal: Tensor | None) -> list[Tensor]:
    """The normal patches (Q, C) of each of R sets (R, L1, h, w, C)."""
    return [] if normal is None else [part.flatten(0, 2) for part in normal]


def select_sets(
    normal: Tensor | None, abnormal: Tensor, marked: Tensor | None, erase: Erase, share_normals: bool
) -> list[AnomalousPatches]:
    """`select_anomalous_patches` for each of R sets; normal (or None), abnormal and marked have R entries, or 1."""
    banks = normal_banks(normal)
    return [
        select_anomalous_patches(
            pick(banks or None, index), pick(abnormal, index), pick(marked, index), erase, share_normals
        )
        for index in range(max(len(banks), len(abnormal)))
    ]


def select_anomalous_patches(
    normals: Tensor | None, abnormal: Tensor, mask: Tensor | None, erase: Erase, share_normals: bool = False
) -> AnomalousPatches:
    """The anomalous patches of one reference set. Only they need denoising: nothing reads the others.

    Args:
        normals: (Q, C); without normal references, the patches outside the mask serve as normal ones.
        abnormal: (L2, h, w, C).
        mask: (L2, h, w) bool; None to mark the patches that deviate most.
        erase: the Normal Variation Eraser with its settings.
        share_normals: whether patches well outside a given mask join the normal ones.
    """
    if mask is not None and normals is not None and share_normals:
        normals = torch.cat([normals, abnormal[~_widened(mask)]])
    if mask is None:
        mask = estimate_mask(normals, abnormal, erase)
    if normals is None:
        normals = abnormal[~mask]
        if not len(normals):
            raise ValueError(
                "masks: expected some patch outside them to serve as normal where there are no normal_refs, "
                f"got masks over all {mask.numel()} patches"
            )
    _, height, width, channels = abnormal.shape
    positions = sinusoidal_positions(height, width, channels, abnormal.device).expand_as(abnormal)
    deviations = erase(abnormal[mask], normals, unit(normals)).denoised
    return AnomalousPatches(normals, abnormal[mask], positions[mask], deviations, mask.nonzero()[:, 0])


def _widened(mask: Tensor) -> Tensor:
    """Patch masks (L, h, w) and the patches around them: what people mark ends a little before the defect does."""
    return F.max_pool2d(mask[:, None].float(), 3, stride=1, padding=1)[:, 0] > 0


def pad_sets(sets: Sequence[AnomalousPatches]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, positions, deviations (R, A, C) of R sets, A the longest, and which are valid (R, A) bool."""
    features = pad_sequence([part.features for part in sets], batch_first=True)
    positions = pad_sequence([part.positions for part in sets], batch_first=True)
    deviations = pad_sequence([part.deviations for part in sets], batch_first=True)
    lengths = torch.tensor([len(part.features) for part in sets], device=features.device)
    return features, positions, deviations, torch.arange(features.shape[1], device=features.device) < lengths[:, None]


@torch.no_grad()
def estimate_mask(normals: Tensor | None, abnormal: Tensor, erase: Erase) -> Tensor:
    """The patches of each abnormal reference (L2, h, w, C) that deviate most: (L2, h, w) bool.

    From normal references: those with the longest denoised deviations, as in the released implementation.
    Without any: those least like every other patch of the abnormal references.
    """
    patches = abnormal.flatten(0, 2)
    if normals is None:
        directions = unit(patches)
        deviation = -nearest_normals(directions, directions, 2)[0][:, -1]  # the nearest one is itself
    else:
        deviation = erase(patches, normals, unit(normals)).denoised.norm(dim=-1)
    deviation = deviation.view(len(abnormal), -1)  # (L2, N)
    count = max(1, int(deviation.shape[1] * PSEUDO_MASK_FRACTION))
    mask = torch.zeros_like(deviation, dtype=torch.bool)
    return mask.scatter_(1, deviation.topk(count).indices, True).view(abnormal.shape[:3])
