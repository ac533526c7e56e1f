"""The output of the model."""

from dataclasses import dataclass

from torch import Tensor
from transformers.utils import ModelOutput


@dataclass
class IdealOutput(ModelOutput):
    """Output of `IdealModel` for B queries.

    Args:
        loss: total training loss (Eq. 10); None unless query masks and labels are given.
        losses: parts of the loss before weighting: focal, dice, image, discriminability, orthogonality.
        scores: (B,) image scores in [0, 1].
        patch_scores: (B, h, w) patch scores in [0, 1].
        anomaly_maps: (B, H, W) patch scores resized to the query, bilinear, not smoothed.
        deviation_vectors: (B, M, C) intrinsic deviation vectors; None without abnormal references, or
            in a training-free model.
    """

    loss: Tensor | None = None
    losses: dict[str, Tensor] | None = None
    # Never None, but ModelOutput requires a default.
    scores: Tensor = None  # type: ignore[assignment]
    patch_scores: Tensor = None  # type: ignore[assignment]
    anomaly_maps: Tensor = None  # type: ignore[assignment]
    deviation_vectors: Tensor | None = None
