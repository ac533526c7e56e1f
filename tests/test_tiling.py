"""Tiles: they cover everything, leave no seams, and find what a resized picture loses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import AutoConfig

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel, IdealReferences
from modeling_ideal.tile_grid import TileGrid, tile_starts
from modeling_ideal.tiling import DEFECT_TILES, TiledDetector, representative_patches

from .conftest import PATCH, tiny_model

TILE = 8 * PATCH
REPEATABLE = settings(derandomize=True, deadline=None, database=None, max_examples=50)
sides = st.integers(1, 200)
tiles = st.integers(2, 60)
overlaps = st.floats(0, 0.75)


@pytest.fixture
def detector(model):
    return TiledDetector(model, IdealImageProcessor(size=TILE, patch_size=PATCH))


def texture(height, width, seed):
    """A woven cloth with uneven dye and some noise, (height, width, 3) uint8."""
    random = np.random.default_rng(seed)
    rows, columns = (np.arange(side, dtype=np.float32) + random.integers(100) for side in (height, width))
    weave = np.sin(rows * 2 * np.pi / 11)[:, None] * np.sin(columns * 2 * np.pi / 9)
    dye = random.integers(0, 40, (height // 60 + 2, width // 60 + 2), dtype=np.uint8)
    grey = np.asarray(Image.fromarray(dye).resize((width, height), Image.Resampling.BICUBIC), np.float32)
    grey += 110 + 40 * weave + random.integers(-8, 9, (height, width), dtype=np.int8)
    return np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, 2)


def with_defect(picture, top, left, side):
    """The picture with a dark square, and its mask."""
    spoilt, mask = picture.copy(), np.zeros(picture.shape[:2], bool)
    mask[top : top + side, left : left + side] = True
    spoilt[mask] //= 4
    return spoilt, mask


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
@given(st.tuples(sides, sides), st.tuples(tiles, tiles), overlaps)
def test_the_weights_add_up_to_one_at_every_pixel(size, tile, overlap):
    grid = TileGrid(size, tile, overlap)
    merged = np.zeros(size, np.float32)
    for index in range(len(grid)):
        grid.add(merged, index, np.ones(tile, np.float32))
    np.testing.assert_allclose(merged, 1, atol=1e-5)


def test_cut_tiles_are_put_back_where_they_were():
    picture = np.random.default_rng(0).random((70, 45)).astype(np.float32)
    grid = TileGrid(picture.shape, (32, 32), 0.25)
    merged = np.zeros_like(picture)
    for index, tile in enumerate(grid.cut(picture)):
        grid.add(merged, index, tile)
    np.testing.assert_allclose(merged, picture, atol=1e-6)


def test_the_merged_map_has_no_seams():
    """Tiles that differ by a constant blend into each other: no step is larger than the windows' own slope."""
    grid = TileGrid((32, 200), (32, 32), 0.5)
    merged = np.zeros(grid.size, np.float32)
    for index in range(len(grid)):
        grid.add(merged, index, np.full(grid.tile, index % 2, np.float32))
    assert np.abs(np.diff(merged, axis=1)).max() < 0.12
    assert merged.max() > 0.9


def test_a_plain_picture_has_a_plain_map(detector):
    grey = np.full((75, 101, 3), 128, np.uint8)
    references = detector.encode_references([np.full((50, 60, 3), 60, np.uint8)])
    anomaly_map = detector.detect(grey, references, smoothing=0).anomaly_map
    one_tile = detector.model(
        detector.processor(query=grey[:TILE, :TILE])["query"],
        references=replace(detector.encode_references([np.full((TILE, TILE, 3), 60, np.uint8)]), tile_size=None),
    )
    # The tiles are equal, so what remains is what one tile says, shifted and blended.
    assert anomaly_map.min() >= one_tile.anomaly_maps.min() - 1e-5
    assert anomaly_map.max() <= one_tile.anomaly_maps.max() + 1e-5


def test_a_picture_of_one_tile_is_scored_as_by_the_model(detector):
    normal, query = texture(TILE, TILE, 0), texture(TILE, TILE, 1)
    abnormal, mask = with_defect(texture(TILE, TILE, 2), 8, 8, 10)
    found = detector.detect(query, detector.encode_references([normal], [abnormal], [mask]), smoothing=0)
    inputs = detector.processor(query=query, normal_refs=[normal], abnormal_refs=[abnormal], masks=[mask])
    expected = detector.model(**inputs)
    assert found.score == pytest.approx(expected.scores.item(), abs=1e-5)
    assert torch.allclose(found.anomaly_map, expected.anomaly_maps[0], atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (20, 90), (TILE, TILE), (33, 65), (97, 41)])
def test_the_map_has_the_pictures_own_size(detector, size):
    references = detector.encode_references([texture(60, 60, 0)])
    found = detector.detect(texture(*size, 1), references)
    assert found.anomaly_map.shape == size
    assert 0 <= found.anomaly_map.min() <= found.anomaly_map.max() <= 1
    assert 0 <= found.score <= 1


def test_the_score_is_not_diluted_by_the_size_of_the_picture(detector):
    references = detector.encode_references([texture(128, 128, 0)])
    small, _ = with_defect(texture(TILE, TILE, 1), 10, 10, 12)
    large = np.tile(texture(TILE, TILE, 1), (6, 6, 1))
    large[:TILE, :TILE] = small
    assert detector.detect(large, references).score >= detector.detect(small, references).score - 1e-5


def test_references_are_bounded_saved_and_loaded(model, tmp_path):
    detector = TiledDetector(model, IdealImageProcessor(size=TILE, patch_size=PATCH), max_patches=100)
    abnormal, mask = with_defect(texture(90, 90, 2), 40, 40, 10)
    references = detector.encode_references([texture(90, 120, 0), texture(64, 64, 1)], [abnormal], [mask])
    assert 20 < len(references.normal_features[0]) <= 100
    assert (references.num_normal, references.num_abnormal, references.mask_source) == (2, 1, "given")
    references.save(tmp_path / "part.safetensors")
    loaded = IdealReferences.load(tmp_path / "part.safetensors")
    query = texture(50, 70, 3)
    assert detector.detect(query, loaded).score == detector.detect(query, references).score
    with pytest.raises(ValueError, match=r"expected a set encoded in tiles of \(16, 16\), got \(32, 32\)"):
        TiledDetector(model, IdealImageProcessor(size=TILE, patch_size=PATCH), tile_size=16).detect(query, loaded)
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        TiledDetector(tiny_model(seed=3), detector.processor).detect(query, loaded)


def test_references_of_tiles_are_not_for_whole_pictures(model, detector):
    references = detector.encode_references([texture(40, 50, 1)])
    with pytest.raises(ValueError, match="references: expected whole pictures, got tiles"):
        model(torch.zeros(1, 3, TILE, TILE), references=references)


def test_abnormal_references_with_masks_without_and_alone(detector):
    abnormal, mask = with_defect(texture(100, 100, 2), 45, 45, 12)
    normal = [texture(100, 100, 0)]
    given = detector.encode_references(normal, [abnormal], [mask])
    estimated = detector.encode_references(normal, [abnormal])
    alone = detector.encode_references((), [abnormal], [mask])
    patches = PATCH**2
    overlapping = DEFECT_TILES * (12**2 / patches + 4 * 12 / PATCH + 4)  # patches that a 12 px square can touch
    assert 0 < len(given.abnormal_deviations[0]) <= overlapping
    assert (estimated.mask_source, estimated.num_abnormal) == ("estimated", 1)
    assert (alone.num_normal, alone.num_abnormal, alone.mask_source) == (0, 1, "given")
    for references in (given, estimated, alone):
        assert detector.detect(abnormal, references).anomaly_map.shape == (100, 100)


def test_calibrated_by_scoring_each_reference_against_the_others(detector):
    normal = [texture(40, 40, seed) for seed in range(3)]
    (first, one), (second, other) = (with_defect(texture(40, 40, seed), 12, 12, 10) for seed in (3, 4))
    calibration = detector.calibrate(normal, [first, second], [one, other], false_alarm=0.3)
    references = detector.encode_references(normal[1:], [first, second], [one, other])
    assert calibration.normal_scores[0] == detector.detect(normal[0], references).score
    references = detector.encode_references(normal, [second], [other])
    assert calibration.abnormal_scores[0] == detector.detect(first, references).score
    assert (len(calibration.normal_scores), len(calibration.abnormal_scores)) == (3, 2)
    assert detector.calibrate(normal[:2], [first], [one]).abnormal_scores == ()
    with pytest.raises(ValueError, match="expected at least two normal images to calibrate tiles, got 1"):
        detector.calibrate(normal[:1])


def test_representative_patches_keep_the_rare_one():
    common = torch.randn(1, 16) + 0.01 * torch.randn(60, 16)
    rare = torch.randn(1, 16)
    kept = representative_patches(torch.cat([common, rare]), [common[:5]], 3)
    assert len(kept) == 3
    assert torch.equal(kept[0], rare[0])
    assert representative_patches(common, [], 100) is common


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected normal or abnormal images, got neither"),
        ({"abnormal": [texture(40, 40, 0)]}, "expected normal images, or masks of the abnormal ones, got neither"),
        ({"normal": [texture(40, 40, 0)], "masks": [0]}, "masks: expected one for each of 0 abnormal images, got 1"),
        (
            {"abnormal": [texture(40, 40, 0)], "masks": [np.ones((40, 40))]},
            "masks: expected some patch outside them to serve as normal",
        ),
    ],
)
def test_bad_references_are_refused(detector, arguments, message):
    with pytest.raises(ValueError, match=message):
        detector.encode_references(**arguments)


def test_bad_settings_are_refused(model):
    processor = IdealImageProcessor(size=TILE, patch_size=PATCH)
    with pytest.raises(ValueError, match=r"overlap: expected a share of a tile in 0..0.75, got 1"):
        TiledDetector(model, processor, overlap=1)
    with pytest.raises(ValueError, match="max_patches: expected at least 1, got 0"):
        TiledDetector(model, processor, max_patches=0)
    with pytest.raises(ValueError, match=r"size: expected multiples of patch_size 4, got \(30, 30\)"):
        TiledDetector(model, processor, tile_size=30)


def test_a_small_defect_in_a_large_picture_is_found_where_the_resized_picture_loses_it():
    """24 pixels in 4000 x 3000: one patch and a half in a tile, a fifth of a patch once the picture is resized."""
    backbone = AutoConfig.for_model(
        "dinov2", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=14, image_size=448
    )
    model = IdealModel(IdealConfig(backbone_config=backbone, num_attention_heads=4, num_deviation_vectors=5))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # weights of our own: releases of transformers draw theirs in different orders
        for parameter in model.backbone.parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))
    processor = IdealImageProcessor()
    normal, clean = texture(3000, 4000, 0), texture(3000, 4000, 1)
    top, left, side = 1402, 2710, 24
    spoilt = clean.copy()
    defect = spoilt[top : top + side, left : left + side]
    defect[:] = defect.mean((0, 1))  # the weave is missing; the colour is right

    detector = TiledDetector(model, processor, overlap=0.1, max_patches=2048)
    found = detector.detect(spoilt, detector.encode_references([normal[:1200, :1200]])).anomaly_map
    peak = found[top : top + side, left : left + side].max()
    assert peak == found.max()
    found[top - 448 : top + 448, left - 448 : left + 448] = 0
    assert peak > 1.3 * found.max()

    resized = model(**processor(query=[spoilt, clean], normal_refs=[normal]))
    assert torch.allclose(resized.scores[0], resized.scores[1], rtol=0.01)
    whole = processor.post_process_anomaly_detection(resized, [(3000, 4000)] * 2)[0]
    assert (whole > whole[top : top + side, left : left + side].max()).float().mean() > 0.05
