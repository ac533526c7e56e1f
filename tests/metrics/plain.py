"""The metrics as one would explain them: a loop over thresholds, a loop over regions. And what tests draw from."""

from itertools import pairwise

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

REPEATABLE = settings(derandomize=True, deadline=None, database=None, max_examples=300)

FLOATS = {"allow_nan": False, "allow_infinity": False, "allow_subnormal": False}


def scores(shape):
    """Spread, heavily tied, heavy-tailed and all-equal scores of a shape (or a strategy for one)."""
    return st.one_of(
        hnp.arrays(np.float32, shape, elements=st.floats(0, 1, width=32, **FLOATS)),
        hnp.arrays(np.float64, shape, elements=st.floats(-1e300, 1e300, **FLOATS)),
        hnp.arrays(np.int64, shape, elements=st.integers(-2, 2)),
        hnp.arrays(np.float64, shape, elements=st.floats(-30, 30).map(np.exp)),
        hnp.arrays(np.float32, shape, elements=st.just(0.25)),
    )


@st.composite
def images(draw, two_classes=True):
    """Scores (n,) and labels (n,), with both classes if asked."""
    size = draw(st.integers(2, 30))
    labels = draw(hnp.arrays(np.int64, size, elements=st.integers(0, 1)))
    if two_classes:
        labels[:2] = [0, 1]
    return draw(scores(size)), labels


@st.composite
def pixels(draw):
    """Maps (n, H, W) and masks (n, H, W), with a normal and an anomalous pixel at least."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(2, 7)))
    masks = draw(hnp.arrays(np.bool_, shape))
    masks[0, 0, :2] = [False, True]
    return draw(scores(shape)), masks


def thresholds(values):
    """All distinct scores, highest first."""
    return np.unique(values)[::-1]


def brute_force_f1_max(values, anomalous):
    best = 0.0
    for threshold in thresholds(values):
        found = values >= threshold
        true_positives = (found & anomalous).sum()
        best = max(best, 2 * true_positives / (found.sum() + anomalous.sum()))
    return best


def regions_of(mask, connectivity=8):
    """Each connected region of a mask (H, W), as a mask (H, W)."""
    numbers, count = ndimage.label(mask, ndimage.generate_binary_structure(2, {4: 1, 8: 2}[connectivity]))
    return [numbers == number for number in range(1, count + 1)]


def plain_pro(maps, masks, limit=0.3, at=None, connectivity=8):
    """PRO of lists of maps (H, W) and masks (H, W), threshold by threshold (all, or those given, highest first)."""
    at = thresholds(np.concatenate([np.ravel(map_) for map_ in maps])) if at is None else at
    curve = [(0.0, 0.0)]
    for threshold in at:
        overlaps, false_positives, normals = [], 0, 0
        for map_, mask in zip(maps, masks, strict=True):
            found = map_ >= threshold
            overlaps += [found[region].mean() for region in regions_of(mask, connectivity)]
            false_positives += (found & ~mask).sum()
            normals += (~mask).sum()
        curve.append((false_positives / normals, np.mean(overlaps)))
    total = 0.0
    for (left, low), (right, high) in pairwise(curve):
        if left < limit and right > left:
            end = min(right, limit)
            total += (end - left) * (low + low + (high - low) * (end - left) / (right - left)) / 2
    return total / limit
