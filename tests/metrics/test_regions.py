"""Connected regions against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modeling_ideal.connected_regions import label_pixels, pixel_shares

from .plain import REPEATABLE, regions_of


def assert_equals_scipy(masks, connectivity):
    """The same regions, whatever their numbers, and the same sizes."""
    expected = np.concatenate([np.full(mask.sum(), -1) for mask in masks])
    shares = np.zeros(expected.size)
    offset = count = 0
    for mask in masks:
        for region in regions_of(mask, connectivity):
            positions = offset + np.flatnonzero(region[mask])
            expected[positions], shares[positions] = count, 1 / region.sum()
            count += 1
        offset += mask.sum()
    labels = label_pixels(masks, connectivity)
    pairs = np.unique(np.column_stack((labels, expected)), axis=0)
    assert labels.shape == expected.shape
    assert len(pairs) == count
    np.testing.assert_array_equal(np.unique(labels), np.arange(count))
    np.testing.assert_allclose(pixel_shares(masks, connectivity), shares)


@pytest.mark.parametrize("connectivity", [4, 8])
@REPEATABLE
@given(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)).flatmap(lambda s: hnp.arrays(np.bool_, s)))
def test_equals_scipy(connectivity, masks):
    assert_equals_scipy(masks, connectivity)


@pytest.mark.parametrize(("connectivity", "share"), [(4, 0.3), (4, 0.6), (8, 0.3), (8, 0.5)])
def test_equals_scipy_on_noise(connectivity, share):
    # Near percolation regions join in every order: joining them carelessly goes round in circles.
    assert_equals_scipy(np.random.default_rng(0).random((20, 60, 70)) < share, connectivity)


def test_long_winding_regions_are_one_each():
    snake = np.zeros((2, 41, 30), dtype=bool)
    snake[:, ::2] = True
    snake[:, 1::4, -1] = snake[:, 3::4, 0] = True
    assert label_pixels(snake, 4).max() == 1
    assert_equals_scipy(snake.transpose(0, 2, 1), 4)


def test_edges_of_the_image_do_not_touch():
    mask = np.zeros((1, 3, 4), dtype=bool)
    mask[0, 0, -1] = mask[0, 1, 0] = mask[0, 2, -1] = True
    assert label_pixels(mask).tolist() == [0, 1, 2]
    assert label_pixels(np.stack([mask[0], mask[0]])).tolist() == [0, 1, 2, 3, 4, 5]
