"""Residual, denoised and projected deviations of query patches, as in the paper's Figure 4."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...normal_variation_eraser import unit
from ..methods.context import Context
from ..protocol.scorer import Scorer, encode_context
from ..results_file import IDEAL

MAX_PATCHES = 125  # of each kind: more would hide each other in a plot, and t-SNE is slow
MAX_STEPS = 500  # of t-SNE; with twice as many, its divergence is within 0.1 %
SEED = 0


@dataclass(frozen=True)
class DeviationSample:
    """Deviations of P query patches, normal and anomalous.

    Args:
        kinds: `"residual"` (Eq. 1), `"denoised"` (Eq. 4) and, from a trained head, `"projected"` (Eq. 8): (P, C).
        anomalous: (P,) bool, whether the patch has an anomalous pixel.
        pictures: (P,) the query that it comes from.
    """

    kinds: dict[str, np.ndarray]
    anomalous: np.ndarray
    pictures: np.ndarray


def project(deviations: Tensor, vectors: Tensor) -> Tensor:
    """sum_m <f, t_m> / <t_m, t_m> t_m of deviations (P, C) on deviation vectors (M, C): (P, C), Eq. 8."""
    directions = unit(vectors)
    return deviations @ directions.mT @ directions


@torch.inference_mode()
def sample_deviations(
    scorer: Scorer, context: Context, queries: Sequence[int], max_patches: int = MAX_PATCHES
) -> DeviationSample:
    """Deviations of at most `max_patches` normal and `max_patches` anomalous patches, a random choice of all.

    Projected deviations need a trained head, `"ideal"` among the heads of the scorer, and abnormal references.
    """
    marked = scorer.cache.patch_masks(queries).flatten(1).numpy()  # (n, N)
    random = np.random.default_rng(SEED)
    chosen = []
    for kind in (False, True):
        places = np.argwhere(marked == kind)  # (any, 2): query, patch
        chosen.append(places[np.sort(random.permutation(len(places))[:max_patches])])
    places = np.concatenate(chosen)  # (P, 2)
    features = context.normals.new_empty(len(places), context.normals.shape[1])
    for position in np.unique(places[:, 0]):
        rows = np.flatnonzero(places[:, 0] == position)
        patches = scorer.features([queries[position]])[0].flatten(0, 1)  # (N, C)
        features[rows] = patches[places[rows, 1]]
    found = context.erase()(features, context.normals, context.directions)
    kinds = {"residual": found.residual.cpu().numpy(), "denoised": found.denoised.cpu().numpy()}
    if IDEAL in scorer.heads:
        vectors = encode_context(scorer.heads[IDEAL], context).deviation_vectors  # (1, M, C)
        if vectors is not None:
            kinds["projected"] = project(found.denoised, vectors[0]).cpu().numpy()
    return DeviationSample(kinds, marked[places[:, 0], places[:, 1]], places[:, 0])


def embed(vectors: np.ndarray) -> np.ndarray:
    """t-SNE of vectors (P, C) on the plane: (P, 2), the same every time."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # Several threads would add up in any order, and t-SNE amplifies a difference in the last digit.
    with threadpool_limits(1):
        perplexity = min(30.0, (len(vectors) - 1) / 3)
        return TSNE(perplexity=perplexity, init="pca", max_iter=MAX_STEPS, random_state=SEED).fit_transform(vectors)


def neighbor_agreement(vectors: np.ndarray, anomalous: np.ndarray, pictures: np.ndarray) -> float:
    """Share of the vectors (P, C) whose nearest neighbour in another picture is of the same kind.

    t-SNE can show clusters where there are none; this is measured on the vectors themselves. Patches of the same
    picture do not count: those of one defect are always similar.

    Returns:
        In 0..1, the mean over normal and anomalous vectors, so that 0.5 is chance; NaN if either is missing.
    """
    distances = torch.cdist(torch.from_numpy(vectors).double(), torch.from_numpy(vectors).double()).numpy()
    distances[pictures[:, None] == pictures] = np.inf
    same = anomalous[distances.argmin(1)] == anomalous
    known = np.isfinite(distances.min(1))
    shares = [same[known & (anomalous == kind)] for kind in (False, True)]
    return float(np.mean([share.mean() for share in shares])) if all(share.size for share in shares) else float("nan")
