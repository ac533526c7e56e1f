"""Training losses: Eq. 7 and 10. Pure functions; every loss is a mean over the batch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .scoring import cosine_distance, upsample

FOCAL_ALPHA, FOCAL_GAMMA = 0.25, 2.0
DICE_SMOOTH = 1.0
PROBABILITY_MARGIN = 1e-6  # keeps logarithms finite


def focal_loss(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Focal loss of probabilities against 0/1 targets of the same shape."""
    anomalous = targets > 0
    correct = torch.where(anomalous, probabilities, 1 - probabilities)  # probability of the true class
    correct = correct.clamp(PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
    weights = torch.where(anomalous, FOCAL_ALPHA, 1 - FOCAL_ALPHA)
    return -(weights * (1 - correct) ** FOCAL_GAMMA * correct.log()).mean()


def dice_loss(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of 1 - Dice of each map (B, ...)."""
    probabilities, targets = probabilities.flatten(1), targets.flatten(1)
    overlap = (probabilities * targets).sum(1)
    total = probabilities.sum(1) + targets.sum(1)
    return (1 - (2 * overlap + DICE_SMOOTH) / (total + DICE_SMOOTH)).mean()


def image_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of image scores (B,) against 0/1 labels (B,)."""
    scores = scores.clamp(PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
    return -torch.where(labels > 0, scores.log(), (1 - scores).log()).mean()


def discriminability_loss(deviations: list[Tensor], vectors: Tensor) -> Tensor:
    """First term of Eq. 7: mean cosine distance of anomalous deviations to the nearest deviation vector.

    Args:
        deviations: R tensors (A_r, C), denoised deviations of the anomalous patches of each reference set.
        vectors: (R, M, C) intrinsic deviation vectors.
    """
    units = F.normalize(vectors, dim=-1)
    distances = [
        cosine_distance((F.normalize(patches, dim=-1) @ directions.T).amax(1)).mean()
        for patches, directions in zip(deviations, units, strict=True)
    ]
    return torch.stack(distances).mean()


def orthogonality_loss(vectors: Tensor) -> Tensor:
    """Second term of Eq. 7: mean squared cosine of the M (M - 1) pairs of different vectors (R, M, C)."""
    count = vectors.shape[1]
    if count == 1:
        return vectors.new_zeros(())
    units = F.normalize(vectors, dim=-1)
    squares = (units @ units.mT).square()
    pairs = squares.sum((1, 2)) - squares.diagonal(dim1=1, dim2=2).sum(1)
    return (pairs / (count * (count - 1))).mean()


def query_losses(
    maps: Tensor, scores: Tensor, query_masks: Tensor, labels: Tensor, similarities: Tensor | None
) -> dict[str, Tensor]:
    """Focal, Dice and image loss of Eq. 10.

    Args:
        maps: (B, H, W) anomaly maps.
        scores: (B,) image scores.
        query_masks: (B, H, W), non-zero where anomalous.
        labels: (B,) 0/1.
        similarities: None for the paper's single map. Differs from the paper: normal and abnormal similarities
            (B, 2, h, w) are used as logits, with Focal on their sigmoid, Dice on their softmax, and a cross-entropy
            over (1 - score, score) as the image loss, because the released implementation does so.
    """
    targets = (query_masks != 0).to(maps.dtype)
    if similarities is None:
        return {
            "focal": focal_loss(maps, targets),
            "dice": dice_loss(maps, targets),
            "image": image_loss(scores, labels),
        }
    targets = torch.stack([1 - targets, targets], 1)  # (B, 2, H, W)
    logits = upsample(similarities.flatten(0, 1), (maps.shape[1], maps.shape[2])).view_as(targets)
    return {
        "focal": focal_loss(logits.sigmoid(), targets),
        "dice": dice_loss(logits.softmax(1).flatten(0, 1), targets.flatten(0, 1)),
        "image": F.cross_entropy(torch.stack([1 - scores, scores], 1), labels.long()),
    }


def total_loss(losses: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    """Weighted sum of the parts of the loss (Eq. 10); parts without a weight count once."""
    return torch.stack([weights.get(name, 1.0) * loss for name, loss in losses.items()]).sum()


def reference_losses(deviations: list[Tensor], vectors: Tensor) -> dict[str, Tensor]:
    """Both terms of L_Dual (Eq. 7); arguments as in `discriminability_loss`."""
    return {
        "discriminability": discriminability_loss(deviations, vectors),
        "orthogonality": orthogonality_loss(vectors),
    }
