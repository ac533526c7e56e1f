"""Detection in tiles: like the model on one tile, and it finds what a resized picture loses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel, IdealReferences, tile_encoder
from modeling_ideal.tile_references import DEFECT_TILES
from modeling_ideal.tiling import TiledDetector

from .conftest import PATCH, tiny_model
from .pictures import texture, with_defect

TILE = 8 * PATCH


@pytest.fixture
def detector(model):
    return TiledDetector(model, IdealImageProcessor(size=TILE, patch_size=PATCH))


def test_a_single_picture_is_not_taken_for_its_rows(detector):
    picture, (spoilt, mask) = texture(50, 60, 0), with_defect(texture(50, 60, 1), 8, 8, 10)
    references = detector.encode_references(picture, spoilt, mask)
    assert (references.num_normal, references.num_abnormal) == (1, 1)
    listed = detector.encode_references((part for part in [picture]), [spoilt], [mask])
    assert torch.equal(listed.normal_features[0], references.normal_features[0])
    with pytest.raises(ValueError, match=r"max_patches: expected an integer >= 1, got 2\.5"):
        TiledDetector(detector.model, detector.processor, max_patches=2.5)


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


def test_shared_normal_patches_leave_the_bank_as_small_as_it_is_to_be():
    detector = TiledDetector(
        tiny_model(share_normals=True), IdealImageProcessor(size=TILE, patch_size=PATCH), max_patches=50
    )
    abnormal, mask = with_defect(texture(90, 90, 2), 40, 40, 10)
    references = detector.encode_references([texture(90, 120, 0)], [abnormal], [mask])
    assert len(references.normal_features[0]) == 50


def test_references_of_tiles_are_not_for_whole_pictures(model, detector):
    references = detector.encode_references([texture(40, 50, 1)])
    with pytest.raises(ValueError, match="references: expected encoded whole pictures, got tiles"):
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


def test_ignored_patches_affect_nothing(detector):
    references = detector.encode_references([texture(100, 100, 0)])
    picture, mask = texture(70, 100, 1), np.zeros((70, 100), bool)
    whole = detector.detect(picture, references)
    row, column = divmod(int(whole.anomaly_map.argmax()), 100)
    mask[max(0, row - 16) : row + 16, max(0, column - 16) : column + 16] = True
    found = detector.detect(picture, references, ignore_mask=mask)
    assert found.score < whole.score
    assert (found.anomaly_map[mask] == 0).all()
    assert found.anomaly_map[~mask].min() > 0
    nothing = detector.detect(picture, references, ignore_mask=np.zeros((70, 100)))
    assert nothing.score == whole.score
    torch.testing.assert_close(nothing.anomaly_map, whole.anomaly_map)
    with pytest.raises(ValueError, match="image, ignore_mask: expected some patch outside it, got none of"):
        detector.detect(picture, references, ignore_mask=np.ones((70, 100)))


def test_the_score_is_the_mean_of_the_highest_patches_of_a_tile(detector):
    references = detector.encode_references([texture(100, 100, 0)])
    picture = texture(70, 100, 1)
    scores = {
        fraction: detector.detect(picture, references, top_fraction=fraction).score for fraction in (0.01, 0.1, 1)
    }
    assert scores[0.01] > scores[0.1] > scores[1]
    assert scores[0.1] == detector.detect(picture, references).score  # the model's own
    assert len(detector.detect(picture, references, top_fraction=1).patches) == (TILE // PATCH) ** 2


def test_a_score_that_is_no_number_is_refused(detector):
    references = detector.encode_references([texture(70, 70, 0)])
    references.normal_features[0][:] = torch.nan
    with pytest.raises(ValueError, match=r"finite|NaN"):
        detector.detect(texture(70, 70, 1), replace(references))


def test_progress_is_shown_by_tile_if_there_are_many(detector, monkeypatch, capsys):
    references = detector.encode_references([texture(70, 90, 0)], false_alarm=0.05)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(tile_encoder, "MANY_TILES", 2)
    monkeypatch.setattr(tile_encoder, "SECONDS", 0)
    detector.detect(texture(70, 90, 1), references)
    assert "image:" in (shown := capsys.readouterr().err)
    assert "tile" in shown


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


def test_bad_numbers_are_refused_before_anything_is_encoded(detector, monkeypatch):
    references = detector.encode_references([texture(40, 40, 0)])
    monkeypatch.setattr(detector.model, "extract_features", None)
    for numbers in ({"false_alarm": 0.7}, {"false_alarm": 0}, {"false_alarm": float("nan")}):
        with pytest.raises(ValueError, match=r"false_alarm: expected a number above 0, below 0\.5, got"):
            detector.encode_references([texture(40, 40, 0)], **numbers)
    with pytest.raises(ValueError, match=r"smoothing: expected a number in 0\.\.512, got -1"):
        detector.detect(texture(40, 40, 1), references, smoothing=-1)
    with pytest.raises(ValueError, match="top_fraction: expected a number > 0, at most 1, got 0"):
        detector.detect(texture(40, 40, 1), references, top_fraction=0)


def test_bad_settings_are_refused(model):
    processor = IdealImageProcessor(size=TILE, patch_size=PATCH)
    with pytest.raises(ValueError, match=r"overlap: expected a number in 0..0.75, a share of a tile, got 1"):
        TiledDetector(model, processor, overlap=1)
    with pytest.raises(ValueError, match=r"overlap: expected a number in .*, got 'half'"):
        TiledDetector(model, processor, overlap="half")
    with pytest.raises(ValueError, match=r"size: expected multiples of patch_size 4, got \('large', 'large'\)"):
        TiledDetector(model, processor, "large")
    with pytest.raises(ValueError, match="max_patches: expected an integer >= 1, got 0"):
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
