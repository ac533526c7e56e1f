"""Normal Variation Eraser (NVE): Eq. 1-4. Pure functions, no weights.

Each target patch is compared with its k nearest normal patches. Its residual (Eq. 1) is the difference to the nearest
one; the normal variation around it spans a small subspace (Eq. 3); the part of the residual inside that subspace is
erased (Eq. 4).

The principal directions are never formed. With X (k x C) the centred neighbours and X X^T = V L V^T,

    U U^T res = X^T V_r L_r^-1 V_r^T X res = sum_j s_j n_j,

so k weights per patch are enough. They come from k x k matrices, and one weighted sum of rows of the normal features
applies them. The work is done in chunks of fixed size, so that memory does not grow with the number of references.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .devices import for_linear_algebra
from .matrix_products import inner_products
from .threads import map_in_threads

NORMALS_AT_ONCE = 2**13  # normal patches in one block of the search
MAX_SIMILARITIES = 2**22  # of a chunk of patches to one block: 16 MB
MAX_NEIGHBORS = 2**12  # in one chunk: 6 MB with 384 channels
GROUPS = 8  # see top_similarities

# A direction of normal variation counts only if its variance is more than rounding, compared with the largest
# variance in the neighbourhood and with the squared length of the features.
RELATIVE_VARIANCE = 1e-5
ABSOLUTE_VARIANCE = 1e-10


class Deviations(NamedTuple):
    """Deviations of P patches from their nearest normal patches."""

    residual: Tensor  # (P, C), Eq. 1
    denoised: Tensor  # (P, C), Eq. 4
    nearest_cosine: Tensor  # (P,), cosine to the nearest normal patch


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors (..., C) to length 1; a zero vector stays zero, so its cosine with anything is 0."""
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
    """Compute the residuals and denoised deviations of target patches.

    Args:
        targets: (P, C) patch features of a query or of abnormal references.
        normals: (Q, C) patch features of the normal references.
        normal_directions: (Q, C) `normals` at length 1.
        num_neighbors: k; at most Q are used.
        num_components: r; at most k - 1 are used.
        erase_strength: alpha; 0 keeps the residual unchanged.
        residual_anchor: `"nearest"` (the paper) or `"centroid"`. Differs from the paper: the centroid of the k
            neighbours, weighted by softmax(cosine), is also the centre of the local PCA, with the same weights,
            because the released implementation does so.
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
    """Find the k nearest normal patches: cosines (P, k) and indices (P, k), nearest first (Eq. 2)."""
    num_neighbors = min(num_neighbors, len(normal_directions))
    blocks = normal_directions.split(NORMALS_AT_ONCE)
    chunk = max(1, MAX_SIMILARITIES // len(blocks[0]))
    found = [_nearest_in_blocks(part, blocks, num_neighbors) for part in directions.split(chunk)]
    cosines, neighbors = zip(*found, strict=True)
    return torch.cat(cosines).clamp_(-1, 1), torch.cat(neighbors)


def _nearest_in_blocks(directions: Tensor, blocks: Sequence[Tensor], count: int) -> tuple[Tensor, Tensor]:
    """Search for the nearest of all normal patches in blocks (Q_b, C): cosines and indices (P, count).

    A product of many patches with one block is faster than one of a few patches with all: each reads its block once.
    """
    found, start = [], 0
    for block in blocks:
        values, columns = top_similarities(inner_products(directions, block), min(count, len(block)))
        found.append((values, columns + start))
        start += len(block)
    if len(found) == 1:
        return found[0]
    cosines, neighbors = (torch.cat(part, 1) for part in zip(*found, strict=True))
    cosines, places = cosines.topk(count)
    return cosines, neighbors.gather(1, places)


def nearest_cosine(vectors: Tensor, directions: Tensor) -> Tensor:
    """Cosine (P,) of each vector (P, C) to the nearest of the directions (Q, C), which have length 1."""
    return nearest_normals(unit(vectors), directions, 1)[0][:, 0]


def top_similarities(similarities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the `count` largest values (P, count) of each row (P, Q) and their columns (P, count), largest first.

    A first pass without sorting halves the time: columns are divided into groups of size `GROUPS`, and the largest
    values of a row are in the groups with the largest maxima.
    """
    rows, columns = similarities.shape
    members = columns // GROUPS
    if members < count:
        return similarities.topk(count)
    rest = similarities[:, members * GROUPS :]  # fewer than GROUPS columns, which belong to no group
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
    """Weighted sums (P, C) of normal patches (Q, C), with (P, k) indices and weights: sum_j weights_j n_j."""
    return F.embedding_bag(neighbors, normals, per_sample_weights=weights, mode="sum")


def _local_geometry(residual: Tensor, normals: Tensor, neighbors: Tensor) -> tuple[Tensor, Tensor]:
    """Inner products in each neighbourhood, with the nearest normal patch as the origin.

    This origin preserves precision, because neighbours are close to each other and far from zero.

    Args:
        residual: (P, C) differences to the nearest normal patch.
        normals: (Q, C) normal patches.
        neighbors: (P, k) indices of the neighbours, nearest first.

    Returns:
        Inner products (P, k, k) of the neighbours, and (P, k) of the neighbours and the residual.
    """
    count, num_neighbors = neighbors.shape
    products = residual.new_empty(count, num_neighbors, num_neighbors)
    chunk = max(1, MAX_NEIGHBORS // num_neighbors)
    for start in range(0, count, chunk):
        rows = slice(start, start + chunk)
        vectors = normals.index_select(0, neighbors[rows].flatten()).view(-1, num_neighbors, normals.shape[1])
        vectors -= vectors[:, :1].clone()
        vectors[:, 0] = residual[rows]  # the row of the origin is zero; the residual takes its place
        products[rows] = vectors @ vectors.mT
    overlap = products[:, 0].clone()
    for origin in (overlap[:, 0], products[:, 0], products[:, :, 0]):
        origin.zero_()
    return products, overlap


def _subspace_weights(
    inner: Tensor, overlap: Tensor, weights: Tensor, num_components: int, negligible: Tensor
) -> Tensor:
    """Compute the weights (P, k) of the neighbours in U U^T res.

    Directions without variance (plain background, the same reference twice) are dropped instead of divided by zero.

    Args:
        inner: (P, k, k) inner products of the neighbours, about any origin.
        overlap: (P, k) inner products of the neighbours and the residual, about the same origin.
        weights: (P or 1, k) weights of the neighbours in their mean and covariance.
        num_components: r.
        negligible: (P,) variance below which there is only rounding.
    """
    count = weights.shape[1]
    num_components = min(num_components, count - 1)
    if num_components == 0:  # a single normal patch has no variation
        return torch.zeros_like(overlap)
    # X = centring @ neighbours: subtracts the mean, and multiplies each by the square root of its weight.
    centring = weights.sqrt()[..., None] * (torch.eye(count, device=weights.device) - weights[:, None])
    values, vectors = symmetric_eigen(centring @ inner @ centring.mT)  # of X X^T, ascending
    values, vectors = values[:, -num_components:], vectors[..., -num_components:]  # (P, r), (P, k, r)
    real = values > torch.maximum(RELATIVE_VARIANCE * values[:, -1:], negligible[:, None])
    inverse = torch.where(real, 1 / values.where(real, 1.0), 0.0)
    coordinates = inverse[..., None] * (vectors.mT @ (centring @ overlap[..., None]))  # (P, r, 1)
    return (centring.mT @ (vectors @ coordinates))[..., 0]


def symmetric_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.linalg.eigh` of (P, k, k), in several threads on a CPU, where LAPACK takes one matrix after another.

    Where a device has no such operation, the CPU does the work, which is little.
    """
    capable = for_linear_algebra(matrices)
    if capable.device != matrices.device:
        found = symmetric_eigen(capable)
        return found[0].to(matrices.device), found[1].to(matrices.device)
    workers = torch.get_num_threads()
    if matrices.device.type != "cpu" or len(matrices) < 32 * workers:
        return torch.linalg.eigh(matrices)
    parts = map_in_threads(torch.linalg.eigh, matrices.chunk(workers), matrices.device)
    values, vectors = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(vectors)
