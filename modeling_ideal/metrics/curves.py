"""ROC and PRO curves with few enough points to draw."""

import numpy as np

from .image import rank_images
from .inputs import Images, Values
from .pixel import rank_pixels
from .ranking import Curve, overlap_curve, roc

MAX_POINTS = 1000


def image_roc_curve(scores: Values, labels: Values, max_points: int = MAX_POINTS) -> Curve:
    """The ROC curve of image scores (n,) and labels (n,), as accepted by `image_metrics`.

    Returns:
        False and true positive rates, (k,) each, from (0, 0) to (1, 1); empty if there is only one class. There are at
        most `max_points` points, none of the exact curve further than 2 / (max_points - 2) from them.
    """
    return thin(roc(rank_images(scores, labels)), max_points)


def pixel_roc_curve(maps: Images, masks: Images, max_points: int = MAX_POINTS) -> Curve:
    """The ROC curve of maps (n, H, W) and masks (n, H, W), as accepted by `pixel_metrics`; see `image_roc_curve`."""
    return thin(roc(rank_pixels(maps, masks)), max_points)


def pro_curve(maps: Images, masks: Images, max_points: int = MAX_POINTS) -> Curve:
    """False positive rates and mean overlaps of regions, over the whole range; otherwise as `pixel_roc_curve`."""
    return thin(overlap_curve(rank_pixels(maps, masks)), max_points)


def thin(curve: Curve, max_points: int) -> Curve:
    """Keep at most `max_points` (3 or more) vertices of a curve that rises from (0, 0) to (1, 1).

    The length x + y is divided into `max_points - 2` equal pieces, and the first vertex of each piece is kept, with
    the end of the curve. Every other vertex is then less than one piece beyond a kept one.
    """
    if max_points < 3:
        raise ValueError(f"max_points: expected at least 3, got {max_points}")
    x, y = curve
    if x.size <= max_points:
        return curve
    first = np.searchsorted(x + y, np.linspace(0.0, 2.0, max_points - 1)[:-1])
    kept = np.unique(np.append(first, x.size - 1))
    return x[kept], y[kept]
