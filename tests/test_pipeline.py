"""The pipeline: one answer whatever form the pictures come in, references encoded once, clear refusals."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import pipeline
from transformers.pipelines.pt_utils import KeyDataset

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.pipeline_results import anomalous_pixels, draw_overlay, find_regions

from .conftest import PATCH, random_images, tiny_model
from .pictures import photograph

SIZES = [(30, 40), (64, 48), (32, 32), (30, 40), (21, 90)]  # height and width


@pytest.fixture(scope="module")
def processor():
    return IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)


@pytest.fixture
def pipe(processor):
    pipe = pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)
    pipe.set_references(normal=[photograph(1), photograph(2)], abnormal=[photograph(3)], masks=[(4, 4, 20, 16)])
    return pipe


@pytest.fixture(scope="module")
def images():
    return [photograph(10 + index, size) for index, size in enumerate(SIZES)]


def assert_same(results, expected):
    results = list(results)
    assert len(results) == len(expected)
    for result, other in zip(results, expected, strict=True):
        assert result.keys() == other.keys()
        assert (result["score"], result["label"]) == (other["score"], other["label"])
        np.testing.assert_array_equal(result["anomaly_map"], other["anomaly_map"])


def drop(result, name):
    return {key: value for key, value in result.items() if key != name}


def test_the_result_is_what_the_model_and_the_processor_say(pipe, processor, images):
    result = pipe(images[0], threshold=0.4)
    assert result.keys() == {"score", "label", "threshold", "anomaly_map", "confidence"}
    inputs = processor(
        query=images[0],
        normal_refs=[photograph(1), photograph(2)],
        abnormal_refs=[photograph(3)],
        masks=[(4, 4, 20, 16)],
    )
    output = pipe.model(**inputs)
    [expected] = processor.post_process_anomaly_detection(output, [SIZES[0]])
    assert result["score"] == pytest.approx(output.scores.item(), abs=1e-6)
    assert result["threshold"] == 0.4
    assert result["anomaly_map"].dtype == np.float32
    np.testing.assert_allclose(result["anomaly_map"], expected.detach().numpy(), atol=1e-6)


def test_the_label_follows_the_threshold(pipe, images):
    score = pipe(images[0])["score"]
    assert pipe(images[0], normal=[photograph(1)], false_alarm=0)["threshold"] == 0.5
    assert pipe(images[0], abnormal=[photograph(1)])["threshold"] == 0.5  # nothing normal to find another from
    assert pipe(images[0], threshold=score)["label"] == "anomalous"
    assert pipe(images[0], threshold=score + 1e-6)["label"] == "normal"
    assert pipe(images[0], threshold=np.float32(0.25))["threshold"] == 0.25


def test_mask_regions_and_overlay_on_request(pipe, images):
    plain = pipe(images[0])["anomaly_map"]
    threshold = float(np.quantile(plain, 0.9))
    asked = {"return_mask": True, "return_regions": True, "return_overlay": True}
    result = pipe(images[0], threshold=threshold, **asked)
    np.testing.assert_array_equal(result["mask"], anomalous_pixels(plain, threshold))
    assert result["regions"] == find_regions(result["mask"], plain)
    assert result["regions"][0]["score"] == plain.max()
    expected = draw_overlay(images[0], plain, result["mask"], threshold)
    np.testing.assert_array_equal(np.asarray(result["overlay"]), np.asarray(expected))
    sharp = pipe(images[0], smoothing=0)["anomaly_map"]
    assert sharp.std() > plain.std()


def test_calibrated_references_bring_a_threshold_and_a_confidence(pipe, images, tmp_path):
    given = {"normal": images[:3], "abnormal": [photograph(3)], "masks": [(4, 4, 20, 16)]}
    references = pipe.set_references(**given, false_alarm=0.1)
    result = pipe(images[3])
    assert result["threshold"] == references.calibration.threshold != 0.5
    assert result["confidence"] == references.calibration.confidence(result["score"])
    fixed = pipe(images[3], **given, threshold=result["threshold"], false_alarm=0)
    assert_same([fixed], [drop(result, "confidence")])
    assert_same([pipe(images[3], **given)], [pipe(images[3], **given, false_alarm=0.05)])  # the default
    assert pipe(images[3], threshold=0.3)["threshold"] == 0.3
    references.save(tmp_path / "product.safetensors")
    assert_same([pipe(images[3], references=tmp_path / "product.safetensors")], [result])


def test_one_answer_whatever_the_form_and_the_batch(pipe, images, tmp_path):
    expected = [pipe(image) for image in images]
    assert [result["anomaly_map"].shape for result in expected] == SIZES
    paths = []
    for index, image in enumerate(images):
        paths.append(str(tmp_path / f"{index}.png"))
        Image.fromarray(image).save(paths[-1])
    for batch_size in (1, 2, 5, 8):
        assert_same(pipe(images, batch_size=batch_size), expected)
    assert_same(pipe(tuple(paths), batch_size=2, num_workers=2), expected)
    assert_same(pipe((path for path in paths), batch_size=3, num_workers=2), expected)
    assert_same(pipe([Image.open(path) for path in paths]), expected)
    assert_same(pipe([torch.from_numpy(image).permute(2, 0, 1) for image in images]), expected)
    assert_same([pipe(path) for path in paths], expected)
    stack = np.stack([images[0], images[3]])
    assert_same(pipe(stack), [expected[0], expected[3]])
    assert pipe([]) == []


def test_a_column_of_a_data_set(pipe, images, tmp_path):
    expected = [pipe(image) for image in images]
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    paths = []
    for index, image in enumerate(images):
        paths.append(str(tmp_path / f"{index}.png"))
        Image.fromarray(image).save(paths[-1])
    column = {"image": [*paths, str(tmp_path / "broken.png")]}
    records = datasets.Dataset.from_dict(column).cast_column("image", datasets.Image())
    for results in (pipe(records["image"], batch_size=2), list(pipe(KeyDataset(records, "image"), batch_size=4))):
        assert_same(results[:-1], expected)
        assert "images[5]: expected an image" in results[-1]["error"]


def test_an_address(pipe, images, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    Image.fromarray(images[0]).save(tmp_path / "part.png")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        found, absent = pipe([f"{address}/part.png", f"{address}/absent.png"])
        server.shutdown()
        thread.join()
    assert_same([found], [pipe(images[0])])
    assert "absent.png: expected a readable image, got HTTPError: HTTP Error 404" in absent["error"]


def test_a_broken_picture_is_named_and_the_rest_goes_on(pipe, images, tmp_path):
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    mixed = [images[0], tmp_path / "cut.png", images[1], np.full((8, 8), np.nan), None, images[2]]
    expected = [pipe(images[index]) for index in range(3)]
    for results in (pipe(mixed, batch_size=4), list(pipe(iter(mixed), batch_size=3)), pipe(mixed, num_workers=2)):
        assert_same([results[0], results[2], results[5]], expected)
        assert results[1].keys() == {"error"}
        assert "cut.png: expected a readable image, got" in results[1]["error"]
        assert "cut.png" in results[1]["error"]
        assert results[3] == {"error": "images[3]: expected finite values, got NaN or infinity"}
        assert "images[4]: expected a path" in results[4]["error"]
    with pytest.raises(ValueError, match=r"image: .*cut.png: expected a readable image, got"):
        pipe(tmp_path / "cut.png")
    with pytest.raises(ValueError, match=r"image: expected a path, .* got dict"):
        pipe({"image": images[0]})


def test_pictures_of_any_aspect_in_one_batch(images):
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH, keep_aspect_ratio=True)
    pipe = AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor)
    pipe.set_references(normal=images[0])
    expected = [pipe(image) for image in images]
    assert [result["anomaly_map"].shape for result in expected] == SIZES
    assert_same(pipe(images, batch_size=5), expected)


def test_references_are_encoded_once(pipe, images, monkeypatch):
    seen = []
    extract = pipe.model.extract_features
    monkeypatch.setattr(pipe.model, "extract_features", lambda x, *rest: (seen.append(len(x)), extract(x, *rest))[1])
    pipe(images, batch_size=2)
    list(pipe(image for image in images))
    assert sum(seen) == 2 * len(images)  # set before, across calls
    pipe(images, normal=[photograph(1), photograph(2)], batch_size=2)
    assert sum(seen) == 3 * len(images) + 2


def test_references_with_the_call_set_once_from_a_file_or_with_the_pipeline(pipe, processor, images, tmp_path):
    given = {"normal": [photograph(1)], "abnormal": [photograph(2), photograph(3)]}
    expected = pipe(images[0], **given)
    assert expected["score"] != pipe(images[0])["score"]  # what came with the call stays with it
    file = tmp_path / "product.safetensors"
    pipe.set_references(**given).save(file)
    assert_same([pipe(images[0])], [expected])
    pipe.set_references(normal=[photograph(5)])
    assert_same([pipe(images[0], references=file)], [expected])
    assert_same([pipe(images[0], references=IdealReferences.load(file))], [expected])
    pipe.set_references(str(file))
    assert_same([pipe(images[0])], [expected])
    made = pipeline("anomaly-detection", model=pipe.model, image_processor=processor, references=file, threshold=0.2)
    assert_same([made(images[0])], [{**expected, "label": "anomalous"}])
    assert made(images[0])["threshold"] == 0.2
    for kind in ("normal", "abnormal"):
        assert 0 <= pipe(images[0], **{kind: given[kind]})["score"] <= 1


BAD_CALLS = {
    "masks alone": ({"masks": [(0, 0, 4, 4)]}, "masks: expected abnormal images with them, got none"),
    "types alone": (
        {"normal": [photograph(1)], "types": ["dent"]},
        r"types: expected one for each of 0 abnormal references, got \['dent'\]",
    ),
    "no images": ({"normal": []}, "normal: expected at least one image, got an empty list"),
    "both": (
        {"references": "file.safetensors", "normal": [photograph(1)]},
        "expected references, or images to encode, got both: references, normal",
    ),
    "a list as references": ({"references": [1]}, r"references: expected a file or an IdealReferences .*got \[1\]"),
    "a percentage": ({"threshold": 40}, "threshold: expected a number in 0..1, got 40"),
    "True": ({"threshold": True}, "threshold: expected a number in 0..1, got True"),
    "a word for a flag": ({"return_mask": "no"}, "return_mask: expected True or False, got 'no'"),
    "tiles of a word": (
        {"normal": [photograph(1)], "tiling": "small"},
        "tiling: expected True, False or a number of pixels, got 'small'",
    ),
    "a word": ({"threshold": "high"}, "threshold: expected a number in 0..1, got 'high'"),
    "negative smoothing": ({"smoothing": -1}, r"smoothing: expected a number in 0\.\.512, got -1"),
    "smoothing of any memory": ({"smoothing": 1e6}, r"smoothing: expected a number in 0\.\.512, got 1000000"),
    "tiles of less than nothing": (
        {"normal": [photograph(1)], "tiling": -5},
        "tiling: expected True, False or a number of pixels, got -5",
    ),
    "no answer": (
        {"normal": [photograph(1)], "keep_pictures": np.ones(3)},
        r"keep_pictures: expected True or False, got array",
    ),
    "nothing at the top": ({"top_fraction": 0}, "top_fraction: expected a number > 0, at most 1, got 0"),
    "everything ignored": (
        {"ignore_mask": (0, 0, 40, 30)},
        "image, ignore_mask: expected some patch outside it, got none of 64",
    ),
    "ignored elsewhere": (
        {"ignore_mask": np.ones((5, 5))},
        r"image, ignore_mask: expected a mask of its image's height and width \(30, 40\), got \(5, 5\)",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_are_refused(pipe, images, case):
    arguments, message = BAD_CALLS[case]
    with pytest.raises(ValueError, match=message):
        pipe(images[0], **arguments)


def test_missing_and_foreign_references_are_refused(processor, images):
    pipe = pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)
    with pytest.raises(ValueError, match=r"expected references, got none: give normal=\[...\], .*set_references"):
        pipe(images[0])
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        pipe.set_references(tiny_model(seed=4).encode_references(random_images(1)))
    sets = pipe.model.encode_references(random_images(2, 1))
    with pytest.raises(ValueError, match=r"an IdealReferences of one set, got IdealReferences\(2 set"):
        pipe.set_references(sets)
    pipe.set_references(normal=photograph(1))
    with pytest.raises(ValueError, match="batch_size: expected an integer >= 1, got 0"):
        pipe(images, batch_size=0)
