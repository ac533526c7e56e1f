"""The generalisation bound of appendix B: how deviation vectors and episodes trade off."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..writing.files import write_figure


def source_side_bound(
    num_deviation_vectors: float,
    num_episodes: float | Sequence[float],
    *,
    vc_dimension: float,
    failure_probability: float = 0.05,
    source_weights: Sequence[float] | None = None,
) -> float:
    """The bound B_src of Eq. A20 on the gap between the risk over the source domains and the training risk.

    sqrt(sum_k(beta_k^2 / n_k) / 2 * log(M / delta)) + 2 sum_k(beta_k sqrt(d / n_k * log(e n_k / d)))

    for losses in 0..1. It grows with the square root of log M, and falls as any n_k grows.

    Args:
        num_deviation_vectors: M, at least 1.
        num_episodes: n_k, training episodes of each of the K source domains, or one number for a single domain; each
            at least `vc_dimension`, since the capacity term (Eq. A10) does not hold below it.
        vc_dimension: d, of the class of models; above 0.
        failure_probability: delta in (0, 1): the bound holds with probability 1 - delta.
        source_weights: beta_k, not negative, with sum 1; equal by default.
    """
    episodes = np.atleast_1d(np.asarray(num_episodes, dtype=np.float64))
    weights = np.full(episodes.shape, 1 / max(episodes.size, 1))
    if source_weights is not None:
        weights = np.asarray(source_weights, dtype=np.float64)
    if not num_deviation_vectors >= 1:
        raise ValueError(f"num_deviation_vectors: expected at least 1, got {num_deviation_vectors}")
    if not 0 < vc_dimension < float("inf"):
        raise ValueError(f"vc_dimension: expected a finite number above 0, got {vc_dimension}")
    if not 0 < failure_probability < 1:
        raise ValueError(f"failure_probability: expected a number in (0, 1), got {failure_probability}")
    if episodes.ndim != 1 or not episodes.size or not (episodes >= max(1, vc_dimension)).all():
        raise ValueError(
            f"num_episodes: expected one number or one for each source domain, each at least 1 and at least "
            f"vc_dimension = {vc_dimension}, got {num_episodes}"
        )
    if weights.shape != episodes.shape or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
        raise ValueError(
            f"source_weights: expected {episodes.size} weights, not negative and of sum 1, got {source_weights}"
        )
    deviation = np.sqrt(np.sum(weights**2 / episodes) / 2 * np.log(num_deviation_vectors / failure_probability))
    capacity = 2 * np.sum(weights * np.sqrt(vc_dimension / episodes * np.log(np.e * episodes / vc_dimension)))
    return float(deviation + capacity)


def plot_source_side_bound(
    path: str | Path,
    num_deviation_vectors: Sequence[int] = (1, 5, 15, 45, 135, 405),
    num_episodes: Sequence[int] = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
    *,
    vc_dimension: float = 10,
    failure_probability: float = 0.05,
) -> None:
    """Plot the bound of a single source domain over M and n (two or more of each), and write it to a PNG file.

    The file is written in one step. The default episodes go up to five times the paper's training (20 epochs of 500);
    its M is 45. The VC dimension of the model is unknown: the default only sets the scale.
    """
    # Without pyplot, which keeps state and may look for a display.
    from matplotlib.figure import Figure

    @np.vectorize
    def bound(vectors: float, episodes: float) -> float:
        return source_side_bound(vectors, episodes, vc_dimension=vc_dimension, failure_probability=failure_probability)

    figure = Figure(figsize=(10, 4), layout="constrained")
    lines, levels = figure.subplots(1, 2)
    for axes in (lines, levels):
        axes.grid(alpha=0.3)
        axes.set(xlabel="deviation vectors M", xscale="log", xticks=num_deviation_vectors)
        axes.set_xticklabels([str(vectors) for vectors in num_deviation_vectors])
    for episodes in num_episodes:
        values = bound(num_deviation_vectors, episodes)
        lines.plot(num_deviation_vectors, values, marker="o", markersize=3, label=f"n = {episodes:,}")
    lines.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    lines.set(ylabel="source-side bound (Eq. A20)", ylim=(0, None))
    # Lines of equal bound: how many more episodes make up for more deviation vectors.
    levels.set(ylabel="training episodes n", yscale="log", yticks=num_episodes)
    levels.set_yticklabels([f"{episodes:,}" for episodes in num_episodes])
    grid = np.meshgrid(
        np.geomspace(min(num_deviation_vectors), max(num_deviation_vectors), 50),
        np.geomspace(min(num_episodes), max(num_episodes), 50),
    )
    levels.clabel(levels.contour(*grid, bound(*grid), levels=10), fontsize="small")
    for axes in (lines, levels):
        axes.minorticks_off()
    figure.suptitle(f"VC dimension {vc_dimension:g}, failure probability {failure_probability:g}")

    write_figure(Path(path), figure)
