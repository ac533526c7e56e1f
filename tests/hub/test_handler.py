"""The endpoint's handler: JSON in, JSON out, references by upload or by name."""

import base64
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from hub import handler as module
from hub.handler import EndpointHandler
from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel

BOX = [2, 3, 20, 15]


def picture(seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def base64_of(image, form="PNG"):
    file = io.BytesIO()
    image.save(file, form)
    return base64.b64encode(file.getvalue()).decode()


def image_of(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


UPLOADED = {"normal": [base64_of(picture(1))], "abnormal": [base64_of(picture(2))], "masks": [BOX]}


@pytest.fixture
def pipe(repository):
    """The pipeline of the package with the same weights and references."""
    pipe = AnomalyDetectionPipeline(
        model=IdealModel.from_pretrained(repository), image_processor=IdealImageProcessor.from_pretrained(repository)
    )
    pipe.set_references(normal=[picture(1)], abnormal=[picture(2)], masks=[BOX])
    return pipe


@pytest.fixture
def folder(repository, pipe, tmp_path):
    """The repository with a stored set of references."""
    folder = tmp_path / "endpoint"
    shutil.copytree(repository, folder)
    (folder / "references").mkdir()
    references = pipe.set_references(normal=[picture(1)], abnormal=[picture(2)], masks=[BOX])
    references.save(folder / "references" / "bottle.safetensors")
    return folder


@pytest.fixture
def handler(folder, modules_cache):
    return EndpointHandler(str(folder))


def ask(handler, **request):
    """As the endpoint does: everything passes through JSON."""
    return json.loads(json.dumps(handler(json.loads(json.dumps(request)))))


def test_one_image_is_judged_as_by_the_pipeline(handler, pipe):
    expected = pipe(picture(3), threshold=0.3, return_mask=True, return_regions=True, return_overlay=True)
    parameters = {"threshold": 0.3, "return_mask": True, "return_regions": True, "return_overlay": True}
    found = ask(handler, inputs=base64_of(picture(3)), references=UPLOADED, parameters=parameters)
    assert found.keys() == expected.keys()
    for name in ("score", "label", "threshold"):
        assert found[name] == expected[name]
    np.testing.assert_allclose(image_of(found["anomaly_map"]) / 65535, expected["anomaly_map"], atol=1e-5)
    assert np.array_equal(image_of(found["mask"]), expected["mask"])
    assert np.array_equal(image_of(found["overlay"]), np.asarray(expected["overlay"]))
    assert found["regions"] == json.loads(json.dumps(expected["regions"]))


def test_every_way_to_give_references_scores_the_same(handler, folder):
    content = (folder / "references" / "bottle.safetensors").read_bytes()
    ways = [UPLOADED, {"name": "bottle"}, {"file": base64.b64encode(content).decode()}]
    image = f"data:image/png;base64,{base64_of(picture(3))}"
    answers = [ask(handler, inputs=image, references=way, parameters={"return_map": False}) for way in ways]
    assert answers[0] == answers[1] == answers[2]
    assert "anomaly_map" not in answers[0]


def test_references_are_encoded_once(handler, monkeypatch):
    encoded = []
    encode = handler._encode
    monkeypatch.setattr(handler, "_encode", lambda given: encoded.append(1) or encode(given))
    for seed in (3, 4, 5):
        ask(handler, inputs=base64_of(picture(seed)), references=UPLOADED)
    assert len(encoded) == 1
    monkeypatch.setattr(module, "KEPT_REFERENCES", 1)
    for x in (5, 6):
        ask(handler, inputs=base64_of(picture(3)), references={**UPLOADED, "masks": [[0, 0, x, 9]]})
    ask(handler, inputs=base64_of(picture(3)), references=UPLOADED)
    assert len(encoded) == 4, "the oldest was forgotten"
    assert len(handler._known) == 1


def test_a_broken_image_among_others_has_an_error_in_its_place(handler):
    images = [base64_of(picture(3)), base64.b64encode(b"no picture").decode(), base64_of(picture(4), "JPEG")]
    first, broken, last = ask(handler, inputs=images, references={"name": "bottle"})
    assert broken.keys() == {"error"}
    assert "inputs[1]: expected an image file, got 10 bytes" in broken["error"]
    assert first == ask(handler, inputs=images[0], references={"name": "bottle"})
    assert last["label"] in ("normal", "anomalous")


def test_an_ignored_region_as_a_picture(handler):
    mask = np.zeros((30, 40), np.uint8)
    mask[:, :20] = 255
    ignored = {"ignore_mask": base64_of(Image.fromarray(mask))}
    found = ask(handler, inputs=base64_of(picture(3)), references={"name": "bottle"}, parameters=ignored)
    assert not image_of(found["anomaly_map"])[:, :20].any()


IMAGE = base64_of(picture(3))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"references": UPLOADED}, r"expected 'inputs', 'references' and 'parameters', got \['references'\]"),
        ({"inputs": IMAGE, "normal": []}, r"got \['inputs', 'normal'\]"),
        ({"inputs": IMAGE}, "references: expected {'name': ...}.*, got NoneType"),
        ({"inputs": IMAGE, "references": {"names": "bottle"}}, r"references: expected .*, got \['names'\]"),
        ({"inputs": IMAGE, "references": {"name": "can"}}, r"expected one of \['bottle'\], got 'can'"),
        ({"inputs": IMAGE, "references": {"name": "../model"}}, r"expected one of \['bottle'\], got '../model'"),
        ({"inputs": IMAGE, "references": {"file": IMAGE}}, "expected a safetensors file of IDEAL references"),
        ({"inputs": IMAGE, "references": {"normal": [7]}}, r"references.normal\[0\]: expected base64.*, got int"),
        ({"inputs": "/etc/passwd", "references": {"name": "bottle"}}, "inputs: expected .*, got '?/etc/passwd"),
        ({"inputs": "part.png", "references": {"name": "bottle"}}, "inputs: expected base64.*, got 'part.png'"),
        ({"inputs": IMAGE, "references": UPLOADED, "parameters": {"treshold": 1}}, r"got unknown \['treshold'\]"),
        ({"inputs": IMAGE, "references": UPLOADED, "parameters": {"normal": ["/a.png"]}}, r"unknown \['normal'\]"),
    ],
)
def test_a_request_that_makes_no_sense(handler, request_, message):
    with pytest.raises(ValueError, match=message):
        ask(handler, **request_)
