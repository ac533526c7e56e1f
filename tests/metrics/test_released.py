"""PRO as released, against a loop over its 50 thresholds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given

from modeling_ideal.metrics import pixel_metrics, released_pro

from .plain import REPEATABLE, pixels, plain_pro


def plain_released_pro(maps, masks):
    lowest, highest = min(map_.min() for map_ in maps), max(map_.max() for map_ in maps)
    thresholds = np.linspace(float(lowest), float(highest), 50)[::-1]
    return plain_pro(maps, masks, at=thresholds, connectivity=4)


@REPEATABLE
@given(pixels())
def test_equals_a_loop_over_thresholds(case):
    maps, masks = case
    assert released_pro(maps, masks) == pytest.approx(plain_released_pro(maps, masks), abs=1e-6)


@pytest.mark.parametrize(("size", "small"), [((512, 512), (256, 256)), ((300, 520), (148, 256)), ((700, 1), (256, 1))])
def test_large_maps_are_brought_to_256_pixels(size, small):
    rng = np.random.default_rng(0)
    maps = rng.random((2, *size), dtype=np.float32)
    masks = np.zeros((2, *size), dtype=bool)
    masks[:, size[0] // 3 : size[0] // 2, : size[1] // 3 + 1] = True
    rows, columns = (
        np.floor((np.arange(n) + 0.5) * full / n).astype(int) for n, full in zip(small, size, strict=True)
    )
    small_masks = masks[:, rows][:, :, columns]
    small_maps = torch.nn.functional.interpolate(torch.from_numpy(maps)[None], size=small, mode="bilinear")[0].numpy()
    assert released_pro(maps, masks) == pytest.approx(plain_released_pro(small_maps, small_masks), abs=1e-6)


def test_heavy_tails_throw_it_off_but_not_the_exact_one():
    rng = np.random.default_rng(0)
    masks = np.zeros((5, 50, 50), dtype=bool)
    masks[:, 10:20, 10:20] = True
    maps = np.exp(5 * rng.standard_normal(masks.shape) + 8 * masks)
    exact = pixel_metrics(maps, masks)["pro"]
    assert exact == pytest.approx(plain_pro(maps, masks, at=np.unique(maps)[::-50]), abs=0.02)
    assert exact - released_pro(maps, masks) > 0.2


def test_undefined_without_a_region_or_a_normal_pixel():
    maps = np.random.default_rng(0).random((1, 3, 3))
    assert math.isnan(released_pro(maps, np.zeros((1, 3, 3))))
    assert math.isnan(released_pro(maps, np.ones((1, 3, 3))))
