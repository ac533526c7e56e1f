"""Image-level metrics: how well image scores separate anomalous from normal images."""

import numpy as np

from .inputs import Values, read_image_scores
from .ranking import Ranking, area, average_precision, f1_max, rank, roc


def image_metrics(scores: Values, labels: Values) -> dict[str, float]:
    """Compute exact AUROC, average precision and F1-max, with ties treated as in scikit-learn.

    Undefined values are NaN: AUROC if there is only one class, all three if there is no anomalous image. If there are
    only anomalous images, average precision and F1-max are 1. If all scores are equal, AUROC is 0.5 and average
    precision is the share of anomalous images.

    Args:
        scores: (n,) finite numbers, higher for more anomalous; array, tensor or list.
        labels: (n,) 0 or False for normal, 1 or True for anomalous.

    Returns:
        `"auroc"`, `"ap"` and `"f1_max"`, each in 0..1 or NaN.
    """
    return ranked_image_metrics(rank_images(scores, labels))


def ranked_image_metrics(ranking: Ranking) -> dict[str, float]:
    """`image_metrics` from the ranking of `rank_images`."""
    return {"auroc": area(roc(ranking)), "ap": average_precision(ranking), "f1_max": f1_max(ranking)}


def rank_images(scores: Values, labels: Values) -> Ranking:
    """Rank image scores (n,) with labels (n,)."""
    values, anomalous = read_image_scores(scores, labels)
    return rank(np.sort(values[~anomalous]), values[anomalous])
