"""PRO as approximated in the paper's released code, for comparison with its figures."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from .inputs import Images, read_pixel_scores
from .pixel import FPR_LIMIT
from .ranking import area, overlap_curve, rank_counts
from .regions import pixel_shares

NUM_THRESHOLDS = 50
LARGEST_SIDE = 256


def released_pro(maps: Images, masks: Images) -> float:
    """Compute PRO at 50 thresholds, with 4-connected regions, on maps with sides of at most 256 pixels.

    Differs from the exact PRO of `pixel_metrics` in three points:

    - maps with a side of more than 256 pixels are reduced to 256, bilinear, and their masks by nearest pixel, so that
      a small region may vanish;
    - regions that touch only at a corner count as two;
    - the curve is computed at 50 thresholds, evenly spaced between the lowest and the highest score, with linear
      interpolation. With heavy-tailed scores nearly all pixels are below the second threshold, and the result can be
      far off.

    Arguments and undefined values are as in `pixel_metrics`.

    Returns:
        A value in 0..1, or NaN.
    """
    pairs = list(_reduced(maps, masks))
    lowest = min(float(scores.min()) for scores, _ in pairs)
    highest = max(float(scores.max()) for scores, _ in pairs)
    thresholds = np.linspace(lowest, highest, NUM_THRESHOLDS)
    normal = np.zeros(NUM_THRESHOLDS, dtype=np.int64)
    anomalous = np.zeros(NUM_THRESHOLDS, dtype=np.int64)
    shares = np.zeros(NUM_THRESHOLDS, dtype=np.float64)
    for scores, mask in pairs:
        # A pixel is found at every threshold up to its score, so its bin is the last of those.
        bins = np.searchsorted(thresholds, scores, side="right") - 1
        normal += np.bincount(bins[~mask], minlength=NUM_THRESHOLDS)
        anomalous += np.bincount(bins[mask], minlength=NUM_THRESHOLDS)
        shares += np.bincount(bins[mask], weights=pixel_shares(mask, connectivity=4), minlength=NUM_THRESHOLDS)
    return area(overlap_curve(rank_counts(normal, anomalous, shares)), FPR_LIMIT)


def _reduced(maps: Images, masks: Images) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield stacks of scores (n, h, w) and anomalous pixels (n, h, w), reduced to sides of at most 256."""
    for scores, anomalous in read_pixel_scores(maps, masks):
        height, width = scores.shape[1:]
        scale = LARGEST_SIDE / max(height, width)
        if scale >= 1:
            yield scores, anomalous
            continue
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        reduced = F.interpolate(torch.from_numpy(scores)[:, None], size, mode="bilinear", align_corners=False)
        mask = F.interpolate(torch.from_numpy(anomalous)[:, None].to(torch.uint8), size, mode="nearest-exact")
        yield reduced[:, 0].numpy(), mask[:, 0].numpy() != 0
