"""Pixel metrics against scikit-learn and plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn.metrics import roc_auc_score

from modeling_ideal.metrics import pixel_metrics

from ..benchmarks.metrics import pro_by_sorting_everything
from .plain import REPEATABLE, brute_force_f1_max, pixels, plain_pro


def smooth_case(seed=0, shape=(4, 40, 50)):
    """Heavy-tailed maps and masks with several regions."""
    rng = np.random.default_rng(seed)
    masks = np.kron(rng.random((shape[0], shape[1] // 5, shape[2] // 5)) < 0.1, np.ones((1, 5, 5), dtype=bool))
    return rng.standard_t(1.5, shape).astype(np.float32) + masks, masks


@REPEATABLE
@given(pixels())
def test_equals_sklearn_and_plain_loops(case):
    maps, masks = case
    result = pixel_metrics(maps, masks)
    assert list(result) == ["auroc", "pro", "f1_max"]
    assert result["auroc"] == pytest.approx(roc_auc_score(masks.ravel(), maps.ravel()), abs=1e-6)
    assert result["pro"] == pytest.approx(plain_pro(maps, masks), abs=1e-6)
    assert result["f1_max"] == pytest.approx(brute_force_f1_max(maps, masks), abs=1e-6)


@REPEATABLE
@given(pixels())
def test_pro_to_other_limits_equals_plain_loops(case):
    maps, masks = case
    for limit in (0.05, 1.0):
        result = pixel_metrics(maps, masks, fpr_limit=limit)
        assert result["pro"] == pytest.approx(plain_pro(maps, masks, limit), abs=1e-6)


def test_pro_of_a_case_worked_by_hand():
    # Nine normal pixels, two regions. 0.9 and 0.8 find half of the first and all of the second: 0.75. Two false
    # alarms (0.6, 0.3) later 0.2 finds the rest, with a third false alarm of the same score; at 0.3 = 2.7 / 9 the
    # line from 0.75 to 1 has come 0.7 of its way, to 0.925.
    maps = [[[0.9, 0.2, 0.1], [0.3, 0.1, 0.0]], [[0.1, 0.0, 0.2], [0.1, 0.6, 0.8]]]
    masks = [[[1, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]]]
    expected = (2 * 0.75 + 0.7 * (0.75 + 0.925) / 2) / 9 / 0.3
    assert pixel_metrics(maps, masks)["pro"] == pytest.approx(expected)


def test_equals_the_baseline_of_the_benchmark():
    maps, masks = smooth_case()
    result = pixel_metrics(maps, masks)
    assert result["pro"] == pytest.approx(pro_by_sorting_everything(maps, masks), abs=1e-9)
    assert result["auroc"] == pytest.approx(roc_auc_score(masks.ravel(), maps.ravel()), abs=1e-9)


def test_regions_are_8_connected_and_stay_within_their_image():
    # Two pixels that touch at a corner are one region of two, so finding one of them is half of it.
    maps = np.zeros((2, 2, 2))
    maps[0, 0, 0] = 1
    masks = np.zeros((2, 2, 2))
    masks[0, 0, 0] = masks[0, 1, 1] = masks[1, 0, 1] = 1
    # Found at no false alarm: half of the first region, nothing of the second.
    assert pixel_metrics(maps, masks, fpr_limit=1e-9)["pro"] == pytest.approx(0.25, abs=1e-6)


def test_a_perfect_map_scores_one_and_no_more():
    _, masks = smooth_case(seed=1)
    result = pixel_metrics(masks.astype(np.float32), masks)
    assert result == {"auroc": 1, "pro": 1, "f1_max": 1}


def test_only_the_order_of_scores_matters():
    maps, masks = smooth_case(seed=2)
    changed = np.arctan(maps.astype(np.float64)) ** 3
    assert pixel_metrics(changed, masks) == pixel_metrics(maps, masks)


NAN = math.nan
DEGENERATE = {
    "no anomalous pixel": (0.5, 0, (NAN, NAN, NAN)),
    "no normal pixel": (0.5, 1, (NAN, NAN, 1)),
    "all scores equal": (0.5, np.eye(4), (0.5, 0.15, 0.4)),
    "perfect": (np.eye(4), np.eye(4), (1, 1, 1)),
    "reversed": (-np.eye(4), np.eye(4), (0, 0, 0.4)),
}


@pytest.mark.parametrize(("map_", "mask", "expected"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_input_has_defined_results(map_, mask, expected):
    maps, masks = np.broadcast_to(map_, (2, 4, 4)), np.broadcast_to(mask, (2, 4, 4))
    assert tuple(pixel_metrics(maps, masks).values()) == pytest.approx(expected, nan_ok=True)


def test_images_of_different_sizes():
    rng = np.random.default_rng(3)
    sizes = [(5, 7), (9, 3), (4, 4)]
    maps = [rng.random(size, dtype=np.float32) for size in sizes]
    masks = [rng.random(size) < 0.3 for size in sizes]
    result = pixel_metrics(maps, masks)
    flat_maps, flat_masks = (np.concatenate([image.ravel() for image in group]) for group in (maps, masks))
    assert result["auroc"] == pytest.approx(roc_auc_score(flat_masks, flat_maps), abs=1e-9)
    assert result["pro"] == pytest.approx(plain_pro(maps, masks), abs=1e-9)
    assert result["f1_max"] == pytest.approx(brute_force_f1_max(flat_maps, flat_masks), abs=1e-9)


@pytest.mark.parametrize("form", [list, tuple, torch.from_numpy, lambda maps: torch.from_numpy(maps).requires_grad_()])
@pytest.mark.parametrize("mask_form", [lambda masks: masks * 255, lambda masks: masks * 0.5, torch.from_numpy, list])
def test_accepts_any_form(form, mask_form):
    maps, masks = smooth_case(seed=4)
    assert pixel_metrics(form(maps), mask_form(masks)) == pixel_metrics(maps, masks)


def test_leaves_its_input_alone():
    maps, masks = smooth_case(seed=5)
    masks[:] = False
    before = maps.copy()
    pixel_metrics(maps, masks)
    np.testing.assert_array_equal(maps, before)
