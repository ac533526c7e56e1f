"""Which type of defect an anomaly is nearest to, by the directions in which its patches deviate. Pure functions."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

UNKNOWN = "unknown"
# Mean cosine of an anomaly's patches to the nearest deviations of a type, below which it is like none of them.
# Differs between products: with one reference a type, photographs of the same type lie between 0.2 and 0.9 (leather).
LEAST_SIMILARITY = 0.3


def type_similarities(deviations: Tensor, references: Tensor, types: Sequence[str]) -> dict[str, float]:
    """How near an anomaly is to each type: -1..1.

    Of every patch the cosine to the nearest reference patch of the type, since a defect's patches differ among
    themselves (its rim, its middle); of an anomaly the mean over its patches.

    Args:
        deviations: (P, C) denoised deviations of the most anomalous patches of a query.
        references: (A, C) denoised deviations of the anomalous patches of the abnormal references.
        types: the type of each of the A patches.
    """
    cosines = F.normalize(deviations, dim=-1) @ F.normalize(references, dim=-1).T  # (P, A)
    similarities = {}
    for name in dict.fromkeys(types):
        of_type = torch.tensor([other == name for other in types], device=cosines.device)
        similarities[name] = float(cosines[:, of_type].amax(1).mean())
    return similarities


def nearest_type(deviations: Tensor, references: Tensor, types: Sequence[str]) -> str:
    """The type an anomaly is nearest to, or `"unknown"` where none is near; arguments as above."""
    similarities = type_similarities(deviations, references, types)
    nearest = max(similarities, key=similarities.__getitem__)
    return nearest if similarities[nearest] >= LEAST_SIMILARITY else UNKNOWN
