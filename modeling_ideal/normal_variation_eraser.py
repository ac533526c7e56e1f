"""Normal Variation Eraser (NVE): Eq. 1-4. Pure functions, no weights.

Each target patch is compared with its k nearest normal patches. What separates it from normality is its
residual (Eq. 1); what normal patches do among themselves around it spans a small subspace (Eq. 3); the part of
the residual inside that subspace is erased (Eq. 4).

The principal directions are never formed. With X (k x C) the centred neighbours and X X^T = V L V^T,

    U U^T res = X^T V_r L_r^-1 V_r^T X res = sum_j s_j n_j,

so k weights a patch say everything, they come from k x k algebra, and one weighted sum of rows of the normal
features applies them. Work goes through fixed-size chunks: memory does not grow with the number of references.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .threads import map_in_threads

MAX_SIMILARITIES = 2**22  # of one chunk of patches against all normal patches: 16 MB
MAX_NEIGHBORS = 2**12  # gathered at a time: 6 MB with 384 channels
GROUPS = 8  # see top_similarities

# A direction of normal variation is real only if its variance stands out from rounding: against the largest
# one of the neighbourhood, and against the squared size of the features themselves.
RELATIVE_VARIANCE = 1e-5
ABSOLUTE_VARIANCE = 1e-10


class Deviations(NamedTuple):
    """How P patches depart from normality."""

    residual: Tensor  # (P, C), Eq. 1
    denoised: Tensor  # (P, C), Eq. 4
    nearest_cosine: Tensor  # (P,), cosine to the nearest normal patch


def unit(vectors: Tensor) -> Tensor:
    """Vectors (..., C) at length 1; a zero vector stays zero, so that its cosine with anything is 0."""
    return F.normalize(vectors, dim=-1)


@torch.no_grad()
def erase_normal_variation(
    targets: Tensor,
    normals: Tensor,
    normal_directions: Tensor,
    num_neighbors: int,
    num_components: int,
    erase_strength: float,
    residual_anchor: str,
) -> Deviations:
    """Residual and denoised deviations of target patches.

    Args:
        targets: (P, C) patch features of a query or of abnormal references.
        normals: (Q, C) patch features of the normal references.
        normal_directions: (Q, C) the same at length 1; kept with a reference set.
        num_neighbors: k; clamped to Q.
        num_components: r; clamped to k - 1.
        erase_strength: alpha; 0 leaves the residual as it is.
        residual_anchor: `"nearest"` (the paper) or `"centroid"`. Differs from the paper: the centroid of the k
            neighbours weighted by softmax(cosine) is also the centre of the local PCA, weighted alike, because
            the released implementation does it so.
    """
    cosines, neighbors = nearest_normals(unit(targets), normal_directions, num_neighbors)  # (P, k) both
    residual = targets - normals.index_select(0, neighbors[:, 0])
    inner, overlap = _local_geometry(residual, normals, neighbors)
    if residual_anchor == "centroid":
        weights = cosines.softmax(-1)
        residual = targets - _weighted_sum(normals, neighbors, weights)
        overlap = overlap - (inner @ weights[..., None])[..., 0]
    else:
        weights = torch.full_like(cosines[:1], 1 / cosines.shape[1])
    negligible = ABSOLUTE_VARIANCE * torch.linalg.vector_norm(targets, dim=-1).square()
    erased = _subspace_weights(inner, overlap, weights, num_components, negligible)
    denoised = residual - erase_strength * _weighted_sum(normals, neighbors, erased)  # Eq. 4
    return Deviations(residual, denoised, cosines[:, 0])


def nearest_normals(directions: Tensor, normal_directions: Tensor, num_neighbors: int) -> tuple[Tensor, Tensor]:
    """Cosines (P, k) and indices (P, k) of the k nearest normal patches, nearest first (Eq. 2)."""
    num_neighbors = min(num_neighbors, len(normal_directions))
    chunk = max(1, MAX_SIMILARITIES // len(normal_directions))
    found = [top_similarities(part @ normal_directions.T, num_neighbors) for part in directions.split(chunk)]
    cosines, neighbors = zip(*found, strict=True)
    return torch.cat(cosines).clamp_(-1, 1), torch.cat(neighbors)


def nearest_cosine(vectors: Tensor, directions: Tensor) -> Tensor:
    """Cosine (P,) of each vector (P, C) to the nearest of directions (Q, C) of length 1."""
    return nearest_normals(unit(vectors), directions, 1)[0][:, 0]


def top_similarities(similarities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (P, Q) and where they are, largest first.

    A sort-free first pass halves the time: columns are put into groups of `GROUPS`, and the largest values of
    a row lie in the groups with the largest maxima.
    """
    rows, columns = similarities.shape
    members = columns // GROUPS
    if members < count:
        return similarities.topk(count)
    rest = similarities[:, members * GROUPS :]  # fewer than GROUPS columns belong to no group
    grouped = similarities[:, : members * GROUPS].unflatten(1, (GROUPS, members))  # column = group + place * members
    groups = grouped.amax(1).topk(count, sorted=False).indices  # (P, count)
    candidates = grouped.gather(2, groups[:, None].expand(-1, GROUPS, -1)).flatten(1)  # (P, GROUPS * count)
    columns_of = (groups[:, None] + members * torch.arange(GROUPS, device=groups.device)[:, None]).flatten(1)
    if rest.shape[1]:
        candidates = torch.cat([candidates, rest], 1)
        others = torch.arange(members * GROUPS, columns, device=groups.device).expand(rows, -1)
        columns_of = torch.cat([columns_of, others], 1)
    values, places = candidates.topk(count)
    return values, columns_of.gather(1, places)


def _weighted_sum(normals: Tensor, neighbors: Tensor, weights: Tensor) -> Tensor:
    """sum_j weights_j n_j of each patch: (P, k) indices and weights to (P, C)."""
    return F.embedding_bag(neighbors, normals, per_sample_weights=weights, mode="sum")


def _local_geometry(residual: Tensor, normals: Tensor, neighbors: Tensor) -> tuple[Tensor, Tensor]:
    """Inner products in each neighbourhood, with its nearest normal patch as the origin.

    That origin keeps the digits: neighbours are close to each other and far from zero.

    Args:
        residual: (P, C) from the nearest normal patch.
        normals: (Q, C).
        neighbors: (P, k).

    Returns:
        (P, k, k) among the neighbours and (P, k) between the neighbours and the residual.
    """
    count, num_neighbors = neighbors.shape
    products = residual.new_empty(count, num_neighbors, num_neighbors)
    chunk = max(1, MAX_NEIGHBORS // num_neighbors)
    for start in range(0, count, chunk):
        rows = slice(start, start + chunk)
        vectors = normals.index_select(0, neighbors[rows].flatten()).view(-1, num_neighbors, normals.shape[1])
        vectors -= vectors[:, :1].clone()
        vectors[:, 0] = residual[rows]  # the origin's own row is zero: the residual takes its place, one product does
        products[rows] = vectors @ vectors.mT
    overlap = products[:, 0].clone()
    for origin in (overlap[:, 0], products[:, 0], products[:, :, 0]):
        origin.zero_()
    return products, overlap


def _subspace_weights(
    inner: Tensor, overlap: Tensor, weights: Tensor, num_components: int, negligible: Tensor
) -> Tensor:
    """The weights (P, k) of the neighbours in U U^T res.

    Directions without variance (a plain background, the same reference twice) are dropped, never divided by.

    Args:
        inner: (P, k, k) inner products of the neighbours, about any origin.
        overlap: (P, k) of the neighbours and the residual, about the same origin.
        weights: (P or 1, k) of the neighbours in their mean and covariance.
        num_components: r.
        negligible: (P,) variance that is mere rounding.
    """
    count = weights.shape[1]
    num_components = min(num_components, count - 1)
    if num_components == 0:  # a single normal patch has no variation
        return torch.zeros_like(overlap)
    # X = centring @ neighbours: less their mean, each times the root of its weight.
    centring = weights.sqrt()[..., None] * (torch.eye(count, device=weights.device) - weights[:, None])
    values, vectors = symmetric_eigen(centring @ inner @ centring.mT)  # of X X^T, ascending
    values, vectors = values[:, -num_components:], vectors[..., -num_components:]  # (P, r), (P, k, r)
    real = values > torch.maximum(RELATIVE_VARIANCE * values[:, -1:], negligible[:, None])
    inverse = torch.where(real, 1 / values.where(real, 1.0), 0.0)
    coordinates = inverse[..., None] * (vectors.mT @ (centring @ overlap[..., None]))  # (P, r, 1)
    return (centring.mT @ (vectors @ coordinates))[..., 0]


def symmetric_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.linalg.eigh` of (P, k, k); on a CPU LAPACK takes one matrix after the other, so share them out."""
    workers = torch.get_num_threads()
    if matrices.device.type != "cpu" or len(matrices) < 32 * workers:
        return torch.linalg.eigh(matrices)
    parts = map_in_threads(torch.linalg.eigh, matrices.chunk(workers), matrices.device)
    values, vectors = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(vectors)
