"""The streaming form: the exact result lies within the stated bounds, whatever the scores."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_ideal.metrics import StreamingPixelMetrics, pixel_metrics

from .plain import REPEATABLE, pixels

ROUNDING = 1e-12


def streamed(maps, masks, *arguments, **options):
    metrics = StreamingPixelMetrics(*arguments, **options)
    for map_, mask in zip(maps, masks, strict=True):
        metrics.update(map_[None], mask[None])
    return metrics


@REPEATABLE
@given(pixels(), st.integers(1, 40), st.sampled_from([0.3, 0.05, 1.0]))
def test_the_exact_result_and_the_streamed_one_lie_within_the_bounds(case, num_bins, limit):
    maps, masks = case
    metrics = streamed(maps, masks, num_bins, fpr_limit=limit)
    exact, result, bounds = pixel_metrics(maps, masks, fpr_limit=limit), metrics.compute(), metrics.bounds()
    assert list(result) == list(bounds) == list(exact)
    for name, (low, high) in bounds.items():
        assert low - ROUNDING <= exact[name] <= high + ROUNDING
        assert low - ROUNDING <= result[name] <= high + ROUNDING


@REPEATABLE
@given(pixels(), st.integers(1, 40))
def test_auroc_is_off_by_half_the_pairs_that_share_a_bin_at_most(case, num_bins):
    maps, masks = case
    bins = np.clip(np.floor(np.clip(maps, 0.0, 1.0).astype(np.float64) * num_bins), 0, num_bins - 1)
    normal, anomalous = bins[~masks], bins[masks]
    together = np.mean(normal[:, None] == anomalous[None])
    low, high = streamed(maps, masks, num_bins).bounds()["auroc"]
    assert high - low == pytest.approx(together, abs=ROUNDING)
    error = abs(streamed(maps, masks, num_bins).compute()["auroc"] - pixel_metrics(maps, masks)["auroc"])
    assert error <= together / 2 + ROUNDING


@pytest.mark.parametrize("num_bins", [1_000, 100_000])
def test_evenly_spread_scores_come_within_the_documented_error(num_bins):
    rng = np.random.default_rng(0)
    masks = rng.random((10, 60, 60)) < 0.2
    maps = rng.random(masks.shape)
    metrics = streamed(maps, masks, num_bins)
    low, high = metrics.bounds()["auroc"]
    assert (high - low) / 2 == pytest.approx(1 / (2 * num_bins), rel=0.2)
    assert metrics.compute() == pytest.approx(pixel_metrics(maps, masks), abs=2 / num_bins)


def test_exact_where_no_bin_holds_both_kinds():
    maps = np.array([[[0.11, 0.52], [0.93, 0.34]]])
    masks = np.array([[[0, 0], [1, 1]]])
    metrics = streamed(maps, masks, 10)
    assert metrics.compute() == pixel_metrics(maps, masks)
    assert all(low == high for low, high in metrics.bounds().values())


def test_scores_out_of_range_widen_the_bounds_and_a_fitting_range_narrows_them():
    rng = np.random.default_rng(1)
    masks = rng.random((3, 20, 20)) < 0.3
    maps = 5 + 10 * rng.random(masks.shape)
    assert streamed(maps, masks).bounds()["auroc"] == pytest.approx((0, 1))
    low, high = streamed(maps, masks, score_range=(5.0, 15.0)).bounds()["auroc"]
    assert high - low < 1e-4


def test_a_refused_update_counts_nothing():
    metrics = StreamingPixelMetrics(100)
    metrics.update([np.eye(3), 1 - np.eye(3)], [np.eye(3), np.eye(3)])
    before = metrics.compute()
    with pytest.raises(ValueError, match=r"maps\[1\]: expected finite"):
        metrics.update([np.eye(3), np.full((3, 3), np.nan)], [np.eye(3), np.eye(3)])
    assert metrics.compute() == before


@pytest.mark.parametrize("mask", [None, 0, 1])
def test_undefined_results_are_nan(mask):
    metrics = StreamingPixelMetrics(100)
    if mask is not None:
        metrics.update(np.full((1, 2, 2), 0.5), np.full((1, 2, 2), mask))
    expected = (math.nan, math.nan, 1 if mask else math.nan)
    assert tuple(metrics.compute().values()) == pytest.approx(expected, nan_ok=True)
    assert tuple(low for low, _ in metrics.bounds().values()) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_bins": 0}, "num_bins: expected at least 1, got 0"),
        ({"score_range": (1, 1)}, r"score_range: expected two finite numbers, the lower first, got \(1, 1\)"),
        ({"score_range": (0, math.inf)}, "score_range: expected two finite numbers"),
        ({"fpr_limit": 0}, r"fpr_limit: expected a number in \(0, 1\], got 0"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        StreamingPixelMetrics(**options)
