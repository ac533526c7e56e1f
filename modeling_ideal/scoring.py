"""Anomaly scoring with projection: Eq. 8-9. Pure functions."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .image_processing_ideal import gaussian_smoothing
from .normal_variation_eraser import nearest_cosine, unit

# A deviation this small relative to its feature (in squared length) is rounding, and its direction is meaningless.
NEGLIGIBLE_DEVIATION = 1e-8
CONTRAST_TEMPERATURE = 0.4  # of the difference of two cosines
KNOWN_SHARE = 1 / 3  # of the alignment with known deviations; the rest does not depend on them
NO_WEIGHT = 1e-6  # a pixel with less weight is reached by no patch that counts


def cosine_distance(cosine: Tensor) -> Tensor:
    """Cosine distance d_cos in [0, 1]."""
    return (1 - cosine) / 2


def projection_cosine(deviations: Tensor, vectors: Tensor, features: Tensor) -> Tensor:
    """Cosine of each deviation and its projection onto the intrinsic deviation vectors (Eq. 8).

    The projection sum_m <f, t_m> / <t_m, t_m> t_m is never formed: with c_m = <f, t_m> / |t_m| and G the inner
    products of the unit vectors, <f, proj> = c . c and |proj|^2 = c G c.

    Args:
        deviations: (B, N, C) denoised deviations.
        vectors: (B or 1, M, C) intrinsic deviation vectors.
        features: (B, N, C) features of the same patches, relative to which a deviation is negligible.

    Returns:
        (B, N), in [0, 1]; 0 for a deviation of length 0.
    """
    units = F.normalize(vectors, dim=-1)
    coefficients = deviations @ units.mT  # (B, N, M)
    inner = coefficients.square().sum(-1)
    projected = ((coefficients @ (units @ units.mT)) * coefficients).sum(-1)
    length = torch.linalg.vector_norm(deviations, dim=-1).square()
    negligible = NEGLIGIBLE_DEVIATION * torch.linalg.vector_norm(features, dim=-1).square()
    tiny = torch.finfo(length.dtype).tiny
    cosine = inner * (length * projected).clamp_min(tiny).rsqrt()
    # Differs from the paper: fades to 0 where the deviation is only rounding, because a query equal to a reference
    # would otherwise be scored by noise. The factor is within 1e-6 of 1 for deviations over a tenth of a feature.
    return cosine.clamp(0, 1) * (length / (length + negligible + tiny))


def align(
    deviations: Tensor, features: Tensor, nearest: Tensor, vectors: Tensor | None, known: "Known", form: str
) -> Tensor:
    """Alignment (B, N) in [0, 1] of deviations with known anomalies, in the form that `IdealConfig.alignment` names.

    Args:
        deviations: (B, N, C) denoised deviations.
        features: (B, N, C) features of the same patches.
        nearest: (B, N) their cosines to the nearest normal patch.
        vectors: (B or 1, M, C) intrinsic deviation vectors; None for a training-free model, whose deviations are
            compared with the nearest one that a reference shows.
        known: the anomalous patches of the references.
        form: `"cosine"`, `"euclidean"` or `"contrast"`.
    """
    if vectors is None:
        cosine = known_cosine(deviations, known.deviations)
    else:
        cosine = projection_cosine(deviations, vectors, features)
    if form != "contrast":
        return deviation_alignment(cosine, form)
    # Vectors that were learned tell anomalies of any type; known deviations are those of a single type.
    trust = 1.0 if vectors is not None else KNOWN_SHARE
    return contrast(features, nearest, known.features) * (1 - trust + trust * cosine)


class Known(NamedTuple):
    """The anomalous patches of the references of B queries."""

    features: Sequence[Tensor]  # B tensors (A, C)
    deviations: Sequence[Tensor]  # B tensors (A, C), denoised


def contrast(features: Tensor, nearest: Tensor, anomalous: Sequence[Tensor]) -> Tensor:
    """Whether patches look more like the anomalous ones of the references than like the normal ones: (B, N), in 0..1.

    Differs from the paper, which compares deviations alone. A patch that is unlike both, as a defect of an unknown
    type is, gets a half. Form and temperature were chosen on source categories (docs/choices.md).

    Args:
        features: (B, N, C) patches.
        nearest: (B, N) their cosines to the nearest normal patch.
        anomalous: B tensors (A, C), anomalous patches of the references.
    """
    similar = [nearest_cosine(image, unit(others)) for image, others in zip(features, anomalous, strict=True)]
    return torch.sigmoid((torch.stack(similar) - nearest) / CONTRAST_TEMPERATURE)


def deviation_alignment(cosine: Tensor, alignment: str) -> Tensor:
    """Similarity in [0, 1] of deviations and their projections, from their cosine.

    `"cosine"` is 1 - d_cos (Eq. 9). Differs from the paper: `"euclidean"` is 1 - ||a - b|| / 2 of the unit
    vectors, because the released implementation does so.
    """
    if alignment == "euclidean":
        return 1 - (cosine_distance(cosine).clamp_min(torch.finfo(cosine.dtype).eps)).sqrt()
    return 1 - cosine_distance(cosine)


def known_cosine(deviations: Tensor, known: Sequence[Tensor]) -> Tensor:
    """Cosine in [0, 1] of deviations (B, N, C) to the nearest deviation that references show, B tensors (A, C).

    A deviation that points away from all of them is no more like them than one at a right angle: both get 0.
    """
    nearest = [nearest_cosine(part, unit(others)) for part, others in zip(deviations, known, strict=True)]
    return torch.stack(nearest).clamp_min(0)  # (B, N)


def patch_scores(nearest_cosine: Tensor, alignment: Tensor | None, form: str = "cosine") -> Tensor:
    """Patch scores A in [0, 1] (Eq. 9), of any shape; without abnormal references, from normal matching alone.

    Differs from the paper: the alignment of the form `"contrast"` multiplies the distance to normal. What is close to
    a normal patch then stays low, whatever else it resembles, and an abnormal reference does no harm.
    """
    matching = cosine_distance(nearest_cosine)
    if alignment is None:
        return matching
    return matching * alignment if form == "contrast" else (alignment + matching) / 2


def image_scores(scores: Tensor, top_fraction: float) -> Tensor:
    """Image scores (B,): the mean of the highest patch scores (B, h, w) of each image, at least one."""
    return scores.flatten(1).gather(1, highest_patches(scores, top_fraction)).mean(1)


def highest_patches(scores: Tensor, top_fraction: float) -> Tensor:
    """Indices (B, n) of the patches with the highest scores (B, h, w), at least one per image, highest first."""
    flat = scores.flatten(1)
    return flat.topk(max(1, int(flat.shape[1] * top_fraction)), dim=1).indices


def smooth_patches(scores: Tensor, sigma: float, counted: Tensor | None = None) -> Tensor:
    """Smooth patch scores (B, h, w) with a Gaussian of `sigma` patches; 0 for none.

    With `counted` (B, h, w), bool, only patches that count spread, and only to each other; the others are 0.
    """
    if counted is None or bool(counted.all()):
        return gaussian_smoothing(scores, sigma) if sigma else scores
    if not sigma:
        return scores * counted
    weights = counted.to(scores.dtype)
    spread = gaussian_smoothing(weights, sigma).clamp_min(NO_WEIGHT)
    return gaussian_smoothing(scores * weights, sigma) / spread * weights


def scores_and_weights(scores: Tensor, counted: Tensor) -> Tensor:
    """Patch scores (h, w), 0 for patches that do not count, and their weights, 0 or 1: (2, h, w).

    Interpolation and smoothing are linear. Applied to both, the quotient of the two is a map of the patches that
    count, into which the others have not spread.
    """
    return torch.stack([scores * counted, counted.to(scores.dtype)])


def weighted_map(values: Tensor, weights: Tensor, ignored: Tensor) -> Tensor:
    """Divide the interpolated scores (H, W) by the interpolated weights (H, W); 0 where ignored."""
    return torch.where(ignored | (weights <= NO_WEIGHT), 0, values / weights.clamp_min(NO_WEIGHT))


def upsample(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Upsample patch maps (B, h, w) to pixels (B, H, W), bilinear.

    Uses two matrix products with the interpolation weights of `F.interpolate`: their gradient is several times as
    fast as its own.
    """
    rows, columns = (_linear_weights(side, pixels).to(maps) for side, pixels in zip(maps.shape[1:], size, strict=True))
    return rows @ maps @ columns.T


@cache
@torch.inference_mode(False)  # the cached tensor must work in training too, even if first needed in inference
def _linear_weights(patches: int, pixels: int) -> Tensor:
    """Interpolation weights (pixels, patches) along one side, float32, on the CPU."""
    lines = torch.eye(patches, dtype=torch.float32, device="cpu")[None]
    return F.interpolate(lines, size=pixels, mode="linear", align_corners=False)[0].T.contiguous()
