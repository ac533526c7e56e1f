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


def test_two_normal_pictures_give_a_threshold_for_tiles(pipe, tmp_path):
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


def test_what_tiles_cannot_do_is_refused(pipe):
    with pytest.raises(ValueError, match=r"tiling: expected no types with it, got \['dent'\]"):
        pipe.set_references(**GIVEN, types=["dent"], tiling=True)
    with pytest.raises(ValueError, match="expected at least two normal images to calibrate tiles, got 1"):
        pipe.set_references(**GIVEN, false_alarm=0.1, tiling=True)
    pipe.set_references(**GIVEN, tiling=True)
    with pytest.raises(ValueError, match="references in tiles: expected neither ignore_mask nor top_fraction"):
        pipe(photograph(3, LARGE), top_fraction=0.1)
