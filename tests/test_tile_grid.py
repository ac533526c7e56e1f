"""The grid of tiles covers everything and leaves no seams; a few patches stand for many."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_ideal.representative_patches import representative_patches
from modeling_ideal.tile_grid import TileGrid, tile_starts

REPEATABLE = settings(derandomize=True, deadline=None, database=None, max_examples=50)
sides = st.integers(1, 200)
tiles = st.integers(2, 60)
patches = st.integers(1, 2)
overlaps = st.floats(0, 0.75)


@REPEATABLE
@given(sides, tiles, overlaps)
def test_tiles_cover_a_side_and_overlap_enough(side, tile, overlap):
    starts = tile_starts(side, tile, overlap)
    assert starts[0] == 0
    assert starts[-1] + tile == max(side, tile)
    steps = np.diff(starts)
    assert (steps > 0).all()
    assert (steps <= max(1, tile * (1 - overlap)) + 1).all()  # + 1: a start is a whole pixel


@REPEATABLE
@given(st.tuples(sides, sides), st.tuples(tiles, tiles), overlaps, st.tuples(patches, patches))
def test_the_weights_add_up_to_one_at_every_pixel(size, tile, overlap, patch):
    tile = tuple(length - length % step for length, step in zip(tile, patch, strict=True))
    grid = TileGrid(size, tile, overlap, patch)
    merged = np.zeros(size, np.float32)
    for index in range(len(grid)):
        assert min(grid.core_size(index)) > 0
        grid.add(merged, index, np.ones(grid.core_size(index), np.float32))
    np.testing.assert_allclose(merged, 1, atol=1e-5)


def test_cut_tiles_are_put_back_where_they_were():
    picture = np.random.default_rng(0).random((70, 45)).astype(np.float32)
    grid = TileGrid(picture.shape, (32, 32), 0.25)
    merged = np.zeros_like(picture)
    for index, tile in enumerate(grid.cut(picture)):
        grid.add(merged, index, tile[grid.core(index)])  # a patch is a pixel here
    np.testing.assert_allclose(merged, picture, atol=1e-6)


def test_neighbours_share_what_overlaps_and_two_patches_more():
    grid = TileGrid((448, 1344), (448, 448), 0.25, (14, 14))
    assert grid.starts == ([0], [0, 299, 597, 896])  # 149 pixels overlap: 4 patches are left to each neighbour
    assert [(core.start, core.stop) for core in grid.cores[1]] == [(0, 28), (4, 28), (4, 28), (4, 32)]
    assert grid.core(0) == (slice(0, 32), slice(0, 28))
    assert grid.core_size(1) == (448, 24 * 14)
    assert TileGrid((448, 448), (448, 448), 0.25, (14, 14)).core(0) == (slice(0, 32), slice(0, 32))


def test_the_merged_map_has_no_seams():
    """Tiles that differ by a constant blend into each other over two patches or more."""
    grid = TileGrid((32, 200), (32, 32), 0.5, (4, 4))
    merged = np.zeros(grid.size, np.float32)
    for index in range(len(grid)):
        grid.add(merged, index, np.full(grid.core_size(index), index % 2, np.float32))
    assert np.abs(np.diff(merged, axis=1)).max() < 0.25
    assert merged.max() > 0.9


@REPEATABLE
@given(st.tuples(sides, sides), st.tuples(tiles, tiles), overlaps)
def test_blocks_have_each_tile_once_and_know_what_they_touch(size, tile, overlap):
    grid = TileGrid(size, tile, overlap)
    blocks = list(grid.blocks())
    assert sorted(index for inside, _ in blocks for index in inside) == list(range(len(grid)))
    for inside, touching in blocks:
        seen = np.zeros([max(pair) for pair in zip(size, tile, strict=True)], bool)
        views = list(grid.cut(seen))
        if all(side >= length for side, length in zip(size, tile, strict=True)):  # else `cut` copies
            for index in inside:
                views[index][:] = True
            assert [index for index, view in enumerate(views) if view.any()] == touching


def test_representative_patches_leave_none_far_away():
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 16, generator=generator) + 0.01 * torch.randn(3000, 16, generator=generator)
    rare = torch.randn(5, 16, generator=generator)
    patches = torch.cat([common, rare])
    for count in (7, 600):
        chosen = representative_patches(patches, count).tolist()
        assert len(set(chosen)) == count
        assert set(range(3000, 3005)) < set(chosen)
    assert representative_patches(patches, 4000).tolist() == list(range(3005))
    assert len(set(representative_patches(torch.ones(9, 3), 5).tolist())) == 5
