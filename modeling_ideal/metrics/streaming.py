"""Pixel metrics for data sets that do not fit into memory, with bounds on the error."""

import numpy as np

from .inputs import Images, check_fraction, read_pixel_scores
from .pixel import FPR_LIMIT
from .ranking import Ranking, area, area_bounds, f1_max, f1_max_bounds, overlap_curve, rank_counts, roc
from .regions import pixel_shares


class StreamingPixelMetrics:
    """Computes `pixel_metrics` from counts of scores in narrow bins, in memory that does not grow with the images.

    Only the order of scores within a bin is lost, which limits the error of each metric to what `bounds` returns for
    the data. For AUROC it is half the share of (anomalous, normal) pairs in the same bin, P_b N_b / (P N) summed over
    the bins b: 1 / (2 num_bins) for scores spread evenly over the range.

    Each `update` must have whole images, because it finds the regions in them.

    Args:
        num_bins: number of bins of equal width over `score_range`; 24 bytes each, 24 MB by default.
        score_range: (low, high). Scores outside are counted in the first or last bin; the bounds hold, but widen.
        fpr_limit: false positive rate up to which PRO is integrated, in (0, 1].

    Example:
        >>> metrics = StreamingPixelMetrics(num_bins=1000)
        >>> metrics.update([[[0.1, 0.9], [0.2, 0.3]]], [[[0, 1], [0, 0]]])
        >>> metrics.update([[[0.1, 0.2], [0.4, 0.95]]], [[[0, 0], [1, 0]]])
        >>> metrics.compute()["auroc"]
        0.8333333333333334
        >>> metrics.bounds()["auroc"]
        (0.8333333333333334, 0.8333333333333334)
    """

    def __init__(
        self,
        num_bins: int = 2**20,
        score_range: tuple[float, float] = (0.0, 1.0),
        *,
        fpr_limit: float = FPR_LIMIT,
    ) -> None:
        if num_bins < 1:
            raise ValueError(f"num_bins: expected at least 1, got {num_bins}")
        low, high = score_range
        if not 0 < high - low < float("inf"):
            raise ValueError(f"score_range: expected two finite numbers, the lower first, got {score_range}")
        check_fraction("fpr_limit", fpr_limit)
        self.score_range = (low, high)
        self.fpr_limit = fpr_limit
        self._normal = np.zeros(num_bins, dtype=np.int64)
        self._anomalous = np.zeros(num_bins, dtype=np.int64)
        self._shares = np.zeros(num_bins, dtype=np.float64)

    def update(self, maps: Images, masks: Images) -> None:
        """Add whole images, in any form that `pixel_metrics` accepts; if one is invalid, none is added."""
        for scores, anomalous in list(read_pixel_scores(maps, masks)):
            anomalous_bins = self._bins(scores[anomalous])
            num_bins = self._normal.size
            self._normal += np.bincount(self._bins(scores[~anomalous]), minlength=num_bins)
            self._anomalous += np.bincount(anomalous_bins, minlength=num_bins)
            self._shares += np.bincount(anomalous_bins, weights=pixel_shares(anomalous), minlength=num_bins)

    def compute(self) -> dict[str, float]:
        """Compute `"auroc"`, `"pro"` and `"f1_max"`, exact for scores rounded to bins, each within `bounds`."""
        ranking = self._ranking()
        return {
            "auroc": area(roc(ranking)),
            "pro": area(overlap_curve(ranking), self.fpr_limit),
            "f1_max": f1_max(ranking),
        }

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Compute the lowest and highest value that `pixel_metrics` can have on the same images, for each metric."""
        ranking = self._ranking()
        return {
            "auroc": area_bounds(roc(ranking)),
            "pro": area_bounds(overlap_curve(ranking), self.fpr_limit),
            "f1_max": f1_max_bounds(ranking),
        }

    def _bins(self, scores: np.ndarray) -> np.ndarray:
        """The bin of each score: never lower for a higher score, even with rounding, so that the bounds hold."""
        low, high = self.score_range
        num_bins = self._normal.size
        positions = (np.clip(scores, low, high, dtype=np.float64) - low) * (num_bins / (high - low))
        return np.minimum(positions.astype(np.int64), num_bins - 1)

    def _ranking(self) -> Ranking:
        return rank_counts(self._normal, self._anomalous, self._shares)
