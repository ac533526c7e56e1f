"""The pipeline on large pictures, in tiles: what `TiledDetector` says, in every form the pipeline takes."""

import numpy as np
import pytest
from transformers import pipeline

from modeling_ideal import IdealImageProcessor
from modeling_ideal.tiling import TiledDetector

from .conftest import PATCH, tiny_model
from .pictures import photograph

LARGE = (90, 130)
GIVEN = {"normal": photograph(1, LARGE), "abnormal": [photograph(2, LARGE)], "masks": [(40, 30, 52, 44)]}


@pytest.fixture
def pipe():
    processor = IdealImageProcessor(size={"height": 8 * PATCH, "width": 10 * PATCH}, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)


@pytest.mark.parametrize("tiling", [True, 6 * PATCH])
def test_tiles_from_references_to_results(pipe, tmp_path, tiling):
    images = [photograph(3, LARGE), photograph(4, (70, 40)), tmp_path / "absent.png"]
    detector = TiledDetector(pipe.model, pipe.image_processor, None if tiling is True else tiling)
    references = detector.encode_references([GIVEN["normal"]], GIVEN["abnormal"], GIVEN["masks"])
    expected = [detector.detect(image, references, smoothing=2.0) for image in images[:2]]

    pipe.set_references(**GIVEN, tiling=tiling).save(tmp_path / "product.safetensors")
    by_file = pipe(iter(images), references=tmp_path / "product.safetensors", smoothing=2.0)  # it knows its tiles
    for results in (pipe(images, smoothing=2.0, batch_size=3, return_overlay=True), list(by_file)):
        for result, detection in zip(results, expected, strict=False):
            assert result["score"] == pytest.approx(detection.score, abs=1e-6)
            np.testing.assert_allclose(result["anomaly_map"], detection.anomaly_map.numpy(), atol=1e-6)
        assert "absent.png" in results[2]["error"]
    assert pipe(images[1], return_overlay=True)["overlay"].size == (40, 70)


def test_references_in_tiles_give_a_threshold(pipe, tmp_path):
    given = {**GIVEN, "normal": [GIVEN["normal"], photograph(5, LARGE)]}
    detector = TiledDetector(pipe.model, pipe.image_processor)
    expected = detector.calibrate(given["normal"], given["abnormal"], given["masks"], false_alarm=0.05)
    references = pipe.set_references(**given, tiling=True)
    assert references.calibration == expected
    references.save(tmp_path / "product.safetensors")
    result = pipe(photograph(3, LARGE), references=tmp_path / "product.safetensors")
    assert result["threshold"] == pytest.approx(expected.threshold)
    assert result["label"] == ("anomalous" if result["score"] >= expected.threshold else "normal")
    assert pipe.set_references(**given, tiling=True, false_alarm=0).calibration is None
    assert pipe.set_references(**given, tiling=True, false_alarm=0.2).calibration.false_alarm == 0.2


def test_a_threshold_for_tiles_from_few_pictures_comes_with_a_warning(pipe, tmp_path):
    """Measured false alarms were far from the requested level; a picture of one tile is judged as without tiles."""
    pictures = [photograph(seed, LARGE) for seed in range(8)]
    message = r"the threshold for tiles rests on the tiles of 2 good pictures alone: far more good parts"
    with pytest.warns(UserWarning, match=message):
        pipe.set_references(normal=[*pictures[:2], pictures[1]], tiling=True).save(tmp_path / "two.safetensors")
    with pytest.warns(UserWarning, match=message):
        pipe(pictures[2], references=tmp_path / "two.safetensors")
    for many in ({"normal": pictures}, {"normal": [photograph(seed, (30, 40)) for seed in range(2)]}):
        assert not any("for tiles" in sentence for sentence in pipe.encode_references(**many, tiling=True).warnings)


def test_types_ignored_regions_and_top_fraction_in_tiles(pipe):
    marks = [(40, 30, 52, 44), (80, 60, 100, 80)]
    given = {"normal": [photograph(1, LARGE), photograph(5, LARGE)], "abnormal": [photograph(2, LARGE)] * 2}
    references = pipe.set_references(**given, masks=marks, types=["dent", "stain"], tiling=True)
    detector = TiledDetector(pipe.model, pipe.image_processor)
    picture, ignored = photograph(2, LARGE), [(0, 0, 60, 90)]
    result = pipe(picture, threshold=0, ignore_mask=ignored, smoothing=2.0)
    found = detector.detect(picture, references, 2.0, ignore_mask=ignored)
    assert result["score"] == pytest.approx(found.score)
    np.testing.assert_allclose(result["anomaly_map"], found.anomaly_map.numpy(), atol=1e-6)
    assert (result["anomaly_map"][:, :60] == 0).all()
    assert result["type"] in ("dent", "stain", "unknown")
    assert pipe(picture, threshold=1)["type"] is None

    few, many = (pipe(picture, top_fraction=share) for share in (0.05, 0.5))
    assert many["score"] == pytest.approx(detector.detect(picture, references, top_fraction=0.5).score)
    assert many["threshold"] == references.calibrated_for(0.5).threshold < few["threshold"]
    assert pipe(picture, ignore_mask=ignored)["threshold"] > 0  # from the same part of the references
    with pytest.raises(ValueError, match="expected an image of the references' size"):
        pipe(photograph(3, (70, 40)), ignore_mask=(0, 0, 9, 9))


@pytest.mark.parametrize(
    ("normal", "query", "message"),
    [
        ([LARGE, LARGE], LARGE[::-1], "expected an image of the references' size"),  # as many tiles, elsewhere
        ([LARGE, LARGE[::-1]], LARGE, "expected normal pictures of one size"),
        ([LARGE, (40, 50)], LARGE, "expected normal pictures of one size"),
    ],
)
def test_what_is_ignored_in_tiles_must_be_at_the_same_place_in_the_references(pipe, tmp_path, normal, query, message):
    references = pipe.set_references(normal=[photograph(seed, size) for seed, size in enumerate(normal)], tiling=True)
    references.save(tmp_path / "product.safetensors")
    for known in (references, tmp_path / "product.safetensors"):
        with pytest.raises(ValueError, match=message):
            pipe(photograph(9, query), references=known, ignore_mask=(0, 0, 60, 90))
        assert pipe(photograph(9, query), references=known, ignore_mask=(0, 0, 60, 90), threshold=0.5)["score"] > 0
        assert pipe(photograph(9, query), references=known)["threshold"] > 0


def test_a_picture_of_one_tile_has_the_same_result_as_without_tiles(pipe):
    size = (8 * PATCH, 10 * PATCH)
    given = {"normal": [photograph(seed, size) for seed in range(6)], "abnormal": [photograph(7, size)]}
    given |= {"masks": [(10, 10, 20, 20)], "types": ["dent"]}
    for asked in ({}, {"top_fraction": 0.3}, {"ignore_mask": [(0, 0, 8, 8)]}):
        tiled, whole = (
            pipe(photograph(8, size), **given, **asked, tiling=tiling, return_mask=True) for tiling in (True, None)
        )
        for name in ("score", "threshold", "confidence"):
            assert tiled[name] == pytest.approx(whole[name], abs=1e-5)
        assert (tiled["label"], tiled["type"]) == (whole["label"], whole["type"])
        np.testing.assert_allclose(tiled["anomaly_map"], whole["anomaly_map"], atol=1e-5)
