"""Pixel-level metrics: how well anomaly maps separate anomalous from normal pixels."""

import numpy as np

from .inputs import Images, check_fraction, read_pixel_scores
from .ranking import Ranking, area, f1_max, overlap_curve, rank, roc
from .regions import pixel_shares

# False positive rate up to which the PRO curve is integrated.
FPR_LIMIT = 0.3


def pixel_metrics(maps: Images, masks: Images, *, fpr_limit: float = FPR_LIMIT) -> dict[str, float]:
    """Compute exact AUROC, PRO and F1-max over all pixels of all images, ties included.

    PRO is the overlap of the 8-connected anomalous regions with the pixels above a threshold, averaged over the
    regions of all images, as a function of the false positive rate over the normal pixels of all images. It is
    integrated up to `fpr_limit`, with linear interpolation at the end, and divided by it.

    Undefined values are NaN: all three if there is no anomalous pixel, AUROC and PRO if there is no normal one
    (F1-max is then 1). If all scores are equal, AUROC is 0.5 and PRO is `fpr_limit / 2`.

    One sort serves all three. In addition to the input, it needs 6 bytes per pixel for float32 maps (10 for float64),
    one more for masks that are not boolean, and up to 100 bytes per anomalous pixel.

    Args:
        maps: (n, H, W) finite scores, higher for more anomalous; an array, a tensor, or a list of maps (H, W) that
            may differ in size.
        masks: (n, H, W) or a list of masks (H, W), non-zero for anomalous.
        fpr_limit: false positive rate up to which PRO is integrated, in (0, 1].

    Returns:
        `"auroc"`, `"pro"` and `"f1_max"`, each in 0..1 or NaN.
    """
    check_fraction("fpr_limit", fpr_limit)
    return ranked_pixel_metrics(rank_pixels(maps, masks), fpr_limit)


def ranked_pixel_metrics(ranking: Ranking, fpr_limit: float = FPR_LIMIT) -> dict[str, float]:
    """`pixel_metrics` from the ranking of `rank_pixels`."""
    return {
        "auroc": area(roc(ranking)),
        "pro": area(overlap_curve(ranking), fpr_limit),
        "f1_max": f1_max(ranking),
    }


def rank_pixels(maps: Images, masks: Images) -> Ranking:
    """Rank the pixels of maps (n, H, W) with masks (n, H, W), giving every 8-connected region the same weight."""
    parts = [
        (scores[~anomalous], scores[anomalous], pixel_shares(anomalous))
        for scores, anomalous in read_pixel_scores(maps, masks)
    ]
    normal, anomalous, weights = (
        pieces[0] if len(pieces) == 1 else np.concatenate(pieces) for pieces in zip(*parts, strict=True)
    )
    normal.sort()
    return rank(normal, anomalous, weights)
