"""All pixel metrics against scikit-learn's AUROC and a plain PRO, in turns within one run."""

import time
import tracemalloc
from statistics import median

import numpy as np
from scipy import ndimage
from sklearn.metrics import roc_auc_score

from modeling_ideal.metrics import pixel_metrics

ROUNDS = 3


def measure() -> dict[str, float]:
    """On 100 maps of 448 x 448: seconds, the ratio of the two, and what ours needs beside its input."""
    maps, masks = smooth_maps(100, 448)
    plain, ours = [], []
    for _ in range(ROUNDS):
        plain.append(
            seconds(lambda: (roc_auc_score(masks.ravel(), maps.ravel()), pro_by_sorting_everything(maps, masks)))
        )
        ours.append(seconds(lambda: pixel_metrics(maps, masks)))
    tracemalloc.start()
    pixel_metrics(maps, masks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "pixel_metrics_speedup": median(
            plain_time / our_time for plain_time, our_time in zip(plain, ours, strict=True)
        ),
        "pixel_metrics_seconds": median(ours),
        "pixel_metrics_peak_extra_mb": peak / 1e6,
    }


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def smooth_maps(count: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed noise (n, H, W), raised in the rectangles of two masks (n, H, W) out of three."""
    rng = np.random.default_rng(0)
    maps = ndimage.gaussian_filter(rng.random((count, side, side), dtype=np.float32), (0, 4, 4))
    masks = np.zeros(maps.shape, dtype=bool)
    for mask in masks[: count * 2 // 3]:
        for top, left, height, width in rng.integers(side // 20, side // 4, (4, 4)):
            mask[3 * top : 3 * top + height, 3 * left : 3 * left + width] = True
    return maps + np.float32(0.02) * masks, masks


def pro_by_sorting_everything(maps: np.ndarray, masks: np.ndarray, limit: float = 0.3) -> float:
    """The usual sort-based PRO: every pixel in one argsort, with its change of false alarms and of overlap."""
    overlap_changes = np.zeros(maps.shape)
    num_regions = 0
    for mask, changes in zip(masks, overlap_changes, strict=True):
        regions, count = ndimage.label(mask, np.ones((3, 3)))
        num_regions += count
        changes[mask] = (1 / np.bincount(regions.ravel()))[regions[mask]]
    order = np.argsort(maps, axis=None)[::-1]
    scores = maps.ravel()[order]
    false_alarms = np.cumsum(~masks.ravel()[order]) / (~masks).sum()
    overlap = np.cumsum(overlap_changes.ravel()[order]) / num_regions
    kept = np.append(scores[1:] != scores[:-1], True)
    x, y = np.append(0.0, false_alarms[kept]), np.append(0.0, overlap[kept])
    end = np.searchsorted(x, limit, side="right")
    x, y = np.append(x[:end], limit), np.append(y[:end], np.interp(limit, x[end - 1 : end + 1], y[end - 1 : end + 1]))
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / limit)
