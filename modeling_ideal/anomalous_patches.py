"""The anomalous patches of abnormal references, and their deviations from the normal patches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .intrinsic_deviation_encoder import sinusoidal_positions
from .normal_variation_eraser import Deviations, nearest_normals, unit

PSEUDO_MASK_FRACTION = 0.01  # of the patches of an abnormal reference without a mask are taken as anomalous

Erase = Callable[[Tensor, Tensor, Tensor], Deviations]  # patches, normals, normal directions


class AnomalousPatches(NamedTuple):
    """The input of the Intrinsic Deviation Encoder for one reference set."""

    normals: Tensor  # (Q, C) features of the normal patches
    features: Tensor  # (A, C) features of the anomalous patches
    positions: Tensor  # (A, C) their sinusoidal positions
    deviations: Tensor  # (A, C) their denoised deviations
    sources: Tensor  # (A,) index of the abnormal reference that each belongs to


def set_of_query(sets: Any, index: int) -> Any:
    """Select the set of query `index`: its own, or the one that all queries share; None if there are no sets."""
    return sets if sets is None else sets[index if len(sets) > 1 else 0]


def normal_banks(normal: Tensor | None, turned: Tensor | None = None) -> list[Tensor]:
    """Join the features (R, L1, h, w, C) of R sets and those in other poses (R, L1, P, C): (Q, C) per set."""
    banks = [] if normal is None else [part.flatten(0, 2) for part in normal]
    return banks if turned is None else [torch.cat(pair) for pair in zip(banks, turned.flatten(1, 2), strict=True)]


def select_sets(
    banks: Sequence[Tensor], abnormal: Tensor, marked: Tensor | None, erase: Erase, share_normals: bool
) -> list[AnomalousPatches]:
    """Apply `select_anomalous_patches` to R sets; `banks`, `abnormal` and `marked` have R entries, or 1 for all."""
    return [
        select_anomalous_patches(
            set_of_query(banks or None, index),
            set_of_query(abnormal, index),
            set_of_query(marked, index),
            erase,
            share_normals,
        )
        for index in range(max(len(banks), len(abnormal)))
    ]


def select_anomalous_patches(
    normals: Tensor | None,
    abnormal: Tensor,
    mask: Tensor | None,
    erase: Erase,
    share_normals: bool = False,
    directions: Tensor | None = None,
) -> AnomalousPatches:
    """Select and denoise the anomalous patches of one reference set.

    Args:
        normals: (Q, C) normal patches; None to use the patches outside the mask.
        abnormal: (L2, h, w, C) features of the abnormal references.
        mask: (L2, h, w) bool; None to mark the patches that deviate most.
        erase: the Normal Variation Eraser with its settings.
        share_normals: whether to add patches well outside a given mask to the normal ones.
        directions: (Q, C) `normals` at length 1, if already known and none are added.
    """
    if mask is not None and normals is not None and share_normals:
        normals = torch.cat([normals, unmarked_patches(abnormal, mask)])
    if mask is None:
        mask = estimate_mask(normals, abnormal, erase, directions)
    if normals is None:
        normals = abnormal[~mask]
        if not len(normals):
            raise ValueError(
                "masks: expected some patch outside them to serve as normal without normal references, "
                f"got masks over all {mask.numel()} patches"
            )
    _, height, width, channels = abnormal.shape
    positions = sinusoidal_positions(height, width, channels, abnormal.device).expand_as(abnormal)
    deviations = erase(abnormal[mask], normals, unit(normals) if directions is None else directions).denoised
    return AnomalousPatches(normals, abnormal[mask], positions[mask], deviations, mask.nonzero()[:, 0])


def unmarked_patches(abnormal: Tensor, mask: Tensor) -> Tensor:
    """The patches (P, C) of pictures (..., h, w, C) that are well outside the defects in their mask (..., h, w).

    Masks grow by one patch: a defect often extends a little beyond what people mark.
    """
    maps = mask.view(-1, 1, *mask.shape[-2:]).float()
    return abnormal[F.max_pool2d(maps, 3, stride=1, padding=1).view(mask.shape) == 0]


def pad_sets(sets: Sequence[AnomalousPatches]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pad R sets to the longest one: features, positions and deviations (R, A, C), and a mask of the valid (R, A)."""
    features = pad_sequence([part.features for part in sets], batch_first=True)
    positions = pad_sequence([part.positions for part in sets], batch_first=True)
    deviations = pad_sequence([part.deviations for part in sets], batch_first=True)
    lengths = torch.tensor([len(part.features) for part in sets], device=features.device)
    return features, positions, deviations, torch.arange(features.shape[1], device=features.device) < lengths[:, None]


@torch.no_grad()
def estimate_mask(normals: Tensor | None, abnormal: Tensor, erase: Erase, directions: Tensor | None = None) -> Tensor:
    """Mark the patches of each abnormal reference (L2, h, w, C) that deviate most: (L2, h, w) bool.

    With normal references, these are the patches with the longest denoised deviations, as in the released
    implementation. Without any, these are the patches least similar to all others of the abnormal references.
    """
    patches = abnormal.flatten(0, 2)
    if normals is None:
        own = unit(patches)
        deviation = -nearest_normals(own, own, 2)[0][:, -1]  # the nearest patch is the patch itself
    else:
        directions = unit(normals) if directions is None else directions
        deviation = erase(patches, normals, directions).denoised.norm(dim=-1)
    deviation = deviation.view(len(abnormal), -1)  # (L2, N)
    count = max(1, int(deviation.shape[1] * PSEUDO_MASK_FRACTION))
    mask = torch.zeros_like(deviation, dtype=torch.bool)
    return mask.scatter_(1, deviation.topk(count).indices, True).view(abnormal.shape[:3])
