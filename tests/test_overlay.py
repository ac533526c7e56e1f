"""Overlays: colours that mean the same in every picture, and a good part that is never red."""

import numpy as np
import pytest

from modeling_ideal.pipeline_results import PIXELS_AT_ONCE, draw_overlay, heat, threshold_scale

from .pictures import photograph


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.8, 0.97])
def test_below_the_threshold_nothing_is_red_and_far_above_it_all_is(threshold):
    scale = threshold_scale(threshold)
    assert 0 <= scale.low < threshold < scale.high <= 1
    normal = heat(np.linspace(0, threshold - 1e-6, 500), scale)
    assert (normal[:, 0] < normal[:, 1]).all()  # green outshines red
    assert (np.diff(normal[:, 3]) >= 0).all()
    [hottest] = heat(np.array([scale.high]), scale)
    assert hottest[0] > 3 * hottest[1:3].max()
    assert not heat(np.array([threshold / 2]), threshold_scale(threshold))[0, 3] > 0.75 / 2


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_thresholds_at_the_ends(threshold):
    colors = heat(np.array([0.0, 0.5, 1.0]), threshold_scale(threshold))
    assert np.isfinite(colors).all()
    assert (colors[:, 0] > 0.7).tolist() == ([False, True, True] if threshold == 0 else [False, False, False])


def test_an_overlay_shows_the_photograph_where_nothing_is_and_heat_where_something_is():
    picture = photograph(0)
    scores = np.zeros((30, 40), np.float32)
    scores[10:20, 10:20] = 0.9
    overlay = np.asarray(draw_overlay(picture, scores, scores > 0, 0.5)).astype(int)
    grey = np.rint(picture.mean(-1))
    assert np.abs(overlay[:5] - grey[:5, :, None]).max() <= 1
    assert (overlay[10:20, 10:20, 0] - overlay[10:20, 10:20, 1] > 50).all()
    as_float = draw_overlay(picture.astype(np.float32) / 255, scores, scores > 0, 0.5)
    assert np.abs(np.asarray(as_float).astype(int) - overlay).max() <= 1


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.5, 0.97, 1.0])
def test_only_the_mask_is_hotter_than_the_threshold(threshold):
    scores = np.random.default_rng(0).random((30, 40), np.float32)
    mask = np.zeros((30, 40), bool)
    mask[10:20] = True
    grey = np.full((30, 40, 3), 128, np.uint8)
    overlay = np.asarray(draw_overlay(grey, scores, mask, threshold)).astype(int)
    outside, inside = overlay[~mask], overlay[mask]
    assert (outside[:, 0] <= outside[:, 1]).all()  # never red, whatever the map
    [[at]] = np.asarray(draw_overlay(grey[:1, :1], np.full((1, 1), threshold), mask[:1, :1], threshold)).astype(int)
    cold = np.asarray(draw_overlay(grey, np.zeros_like(scores), mask, threshold)).astype(int)
    assert (cold[mask] == at).all()  # at least the colour of the threshold, whatever the map
    assert (inside[:, 0] >= at[0]).all()


@pytest.mark.parametrize("as_float", [False, True])
def test_an_overlay_drawn_in_parts_from_a_table_of_colours_is_the_plain_formula(as_float):
    random = np.random.default_rng(0)
    picture = random.integers(0, 256, (301, 257, 3), dtype=np.uint8)
    picture = picture.astype(np.float32) / 255 if as_float else picture
    scores = random.random((301, 257), dtype=np.float32)
    assert scores.size > 2 * PIXELS_AT_ONCE
    mask = scores >= 0.4
    grey = picture.mean(-1, keepdims=True) / (1 if as_float else 255)
    shown = np.where(mask, np.maximum(scores, np.float64(0.4)), np.minimum(scores, np.float64(0.4)))
    colors = heat(shown, threshold_scale(0.4))
    plain = np.rint((grey * (1 - colors[..., 3:]) + colors[..., :3] * colors[..., 3:]) * 255)
    difference = np.abs(np.asarray(draw_overlay(picture, scores, mask, 0.4)) - plain)
    assert difference.max() <= 1
    assert (difference == 0).mean() > 0.95
