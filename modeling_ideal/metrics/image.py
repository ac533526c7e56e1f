"""How well image scores tell anomalous from normal images."""

import numpy as np

from .inputs import Values, read_images
from .ranking import Ranking, area, average_precision, f1_max, rank, roc


def image_metrics(scores: Values, labels: Values) -> dict[str, float]:
    """Exact AUROC, average precision and F1-max; equal scores are treated as scikit-learn does.

    Undefined values are NaN, never a number that looks like a result: AUROC with one class only, all three without
    an anomalous image. With anomalous images only, average precision and F1-max are 1. With all scores equal, AUROC
    is 0.5 and average precision the share of anomalous images.

    Args:
        scores: (n,) finite numbers, higher for more anomalous; array, tensor or list.
        labels: (n,) 0 or False for normal, 1 or True for anomalous.

    Returns:
        `"auroc"`, `"ap"` and `"f1_max"`, each in 0..1 or NaN.
    """
    ranking = rank_images(scores, labels)
    return {"auroc": area(roc(ranking)), "ap": average_precision(ranking), "f1_max": f1_max(ranking)}


def rank_images(scores: Values, labels: Values) -> Ranking:
    """Rank image scores (n,) by labels (n,)."""
    values, anomalous = read_images(scores, labels)
    return rank(np.sort(values[~anomalous]), values[anomalous])
