"""How well anomaly maps tell anomalous from normal pixels."""

import numpy as np

from .inputs import Images, check_fraction, read_pixels
from .ranking import Ranking, area, f1_max, overlap_curve, rank, roc
from .regions import pixel_shares

# The PRO curve counts up to this share of false alarms among the normal pixels.
FPR_LIMIT = 0.3


def pixel_metrics(maps: Images, masks: Images, *, fpr_limit: float = FPR_LIMIT) -> dict[str, float]:
    """Exact AUROC, PRO and F1-max over all pixels of all images, ties included.

    PRO is the overlap of the 8-connected anomalous regions with the pixels above a threshold, averaged over regions
    of all images, as a function of the false positive rate over the normal pixels of all images; integrated up to
    `fpr_limit` with linear interpolation at the end, and divided by it.

    Undefined values are NaN, never a number that looks like a result: all three without an anomalous pixel, AUROC
    and PRO without a normal one (F1-max is 1 then). With all scores equal, AUROC is 0.5, PRO `fpr_limit / 2`.

    One sort serves all three. Beside its input it needs 6 bytes a pixel for float32 maps (10 for float64), one more
    for masks that are not boolean, and up to 100 bytes an anomalous pixel.

    Args:
        maps: (n, H, W) finite scores, higher for more anomalous; an array, a tensor, or a list of maps (H, W) that
            may differ in size.
        masks: of the same shape or shapes; not zero = anomalous.
        fpr_limit: in (0, 1].

    Returns:
        `"auroc"`, `"pro"` and `"f1_max"`, each in 0..1 or NaN.
    """
    check_fraction("fpr_limit", fpr_limit)
    ranking = rank_pixels(maps, masks)
    return {
        "auroc": area(roc(ranking)),
        "pro": area(overlap_curve(ranking), fpr_limit),
        "f1_max": f1_max(ranking),
    }


def rank_pixels(maps: Images, masks: Images) -> Ranking:
    """Rank the pixels of maps (n, H, W) by masks (n, H, W), weighted so that every 8-connected region counts alike."""
    parts = [
        (scores[~anomalous], scores[anomalous], pixel_shares(anomalous))
        for scores, anomalous in read_pixels(maps, masks)
    ]
    normal, anomalous, weights = (
        pieces[0] if len(pieces) == 1 else np.concatenate(pieces) for pieces in zip(*parts, strict=True)
    )
    normal.sort()
    return rank(normal, anomalous, weights)
