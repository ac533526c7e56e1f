"""The ranking of normal and anomalous scores, from which all metrics are computed.

Between two neighbouring anomalous scores there are only normal ones, so every curve is level there and no metric has
its optimum there. The counts at the distinct anomalous scores are therefore enough for exact results. Anomalous pixels
are few, and the many normal scores only need a sort of plain numbers, which is several times as fast as a sort with
labels.
"""

from dataclasses import dataclass

import numpy as np

Curve = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Ranking:
    """Counts at each of the k distinct anomalous scores, from the highest to the lowest.

    Attributes:
        normal_above: (k,) number of normal scores above it.
        normal: (k,) number of normal scores above or equal to it.
        anomalous: (k,) number of anomalous scores above or equal to it; the last is the total.
        overlap: (k,) weight of the anomalous scores above or equal to it as a share of the total, in (0, 1]. With
            weights of 1 / size of a pixel's region, this is the per-region overlap, averaged over the regions.
        num_normal: total number of normal scores.
    """

    normal_above: np.ndarray
    normal: np.ndarray
    anomalous: np.ndarray
    overlap: np.ndarray
    num_normal: int

    @property
    def num_anomalous(self) -> int:
        return int(self.anomalous[-1]) if self.anomalous.size else 0


def rank(normal: np.ndarray, anomalous: np.ndarray, weights: np.ndarray | None = None) -> Ranking:
    """Rank scores exactly; equal scores stay together.

    Args:
        normal: (m,) normal scores, ascending.
        anomalous: (p,) anomalous scores, in any order.
        weights: (p,) positive weights of the anomalous scores; None for equal weights.
    """
    order = np.argsort(anomalous)[::-1]
    ordered = anomalous[order]
    # The last of each group of equal scores; NaN, which differs from every score, ends the last group.
    last = np.flatnonzero(ordered != np.append(ordered[1:], np.nan))
    thresholds = ordered[last]
    weight = np.cumsum(weights[order], dtype=np.float64)[last] if weights is not None else last + 1.0
    return Ranking(
        normal_above=normal.size - np.searchsorted(normal, thresholds, side="right"),
        normal=normal.size - np.searchsorted(normal, thresholds, side="left"),
        anomalous=last + 1,
        overlap=weight / weight[-1:],
        num_normal=normal.size,
    )


def rank_counts(normal: np.ndarray, anomalous: np.ndarray, weights: np.ndarray) -> Ranking:
    """Rank binned scores, as if all scores in a bin were equal.

    Args:
        normal: (b,) number of normal scores in each bin, from the lowest bin to the highest.
        anomalous: (b,) number of anomalous scores in each bin.
        weights: (b,) total weight of the anomalous scores in each bin.
    """
    normal, anomalous, weights = normal[::-1], anomalous[::-1], weights[::-1]
    occupied = np.flatnonzero(anomalous)
    at_least = np.cumsum(normal)
    weight = np.cumsum(weights[occupied])
    return Ranking(
        normal_above=(at_least - normal)[occupied],
        normal=at_least[occupied],
        anomalous=np.cumsum(anomalous[occupied]),
        overlap=weight / weight[-1:],
        num_normal=int(at_least[-1]),
    )


def roc(ranking: Ranking) -> Curve:
    """Vertices (2k + 2,) of the ROC curve: the share of anomalous over the share of normal scores found."""
    return _curve(ranking, ranking.anomalous / max(ranking.num_anomalous, 1))


def overlap_curve(ranking: Ranking) -> Curve:
    """Vertices (2k + 2,) of the PRO curve: the weighted share of anomalous over the share of normal scores found."""
    return _curve(ranking, ranking.overlap)


def average_precision(ranking: Ranking) -> float:
    """Mean of the precision at each anomalous score; NaN if there is none."""
    if not ranking.num_anomalous:
        return float("nan")
    precision = ranking.anomalous / (ranking.anomalous + ranking.normal)
    return float(precision @ np.diff(ranking.anomalous, prepend=0) / ranking.num_anomalous)


def f1_max(ranking: Ranking) -> float:
    """Highest F1 score of any threshold; NaN if there is no anomalous score."""
    return _highest_f1(ranking, ranking.normal)


def f1_max_bounds(ranking: Ranking) -> tuple[float, float]:
    """Lower and upper bound of F1-max if the order within each group of equal scores is unknown.

    A threshold at the end of a group reaches the lower bound; the upper one needs a group whose anomalous scores are
    all higher than its normal ones.
    """
    return f1_max(ranking), _highest_f1(ranking, ranking.normal_above)


def area(curve: Curve, limit: float = 1.0) -> float:
    """Mean height of a curve over 0..limit, with linear interpolation between vertices and at the limit."""
    x, y = curve
    if not x.size:
        return float("nan")
    inside = int(np.searchsorted(x, limit, side="right"))
    if inside < x.size:
        at_limit = np.interp(limit, x[inside - 1 : inside + 1], y[inside - 1 : inside + 1])
        x, y = np.append(x[:inside], limit), np.append(y[:inside], at_limit)
    return float(np.diff(x) @ (y[1:] + y[:-1]) / 2 / limit)


def area_bounds(curve: Curve, limit: float = 1.0) -> tuple[float, float]:
    """Smallest and largest `area` of all rising curves through the same vertices."""
    x, y = curve
    if not x.size:
        return float("nan"), float("nan")
    widths = np.diff(np.minimum(x, limit))
    return float(widths @ y[:-1] / limit), float(widths @ y[1:] / limit)


def _curve(ranking: Ranking, heights: np.ndarray) -> Curve:
    """The curve from (0, 0) to (1, 1): level up to each anomalous score, then straight to its height (k,).

    Without normal or anomalous scores there are no vertices, and the area is NaN.
    """
    if not ranking.num_anomalous or not ranking.num_normal:
        return np.empty(0), np.empty(0)
    passed = np.column_stack((ranking.normal_above, ranking.normal)).ravel()
    x = np.concatenate(([0], passed, [ranking.num_normal])) / ranking.num_normal
    return x, np.repeat(np.append(0.0, heights), 2)


def _highest_f1(ranking: Ranking, normal: np.ndarray) -> float:
    if not ranking.num_anomalous:
        return float("nan")
    return float((2 * ranking.anomalous / (ranking.num_anomalous + ranking.anomalous + normal)).max())
