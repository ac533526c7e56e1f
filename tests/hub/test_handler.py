"""The endpoint's handler: JSON in, JSON out, references by upload or by name."""

import base64
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import numpy as np
import pytest
import torch
from PIL import Image

from hub import handler as module
from hub.handler import EndpointHandler
from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel

from .uploads import base64_of, image_of, picture

BOX = [2, 3, 20, 15]
AS_A_SERVER = """
import importlib.util, json, sys
folder, request = sys.argv[1:]
spec = importlib.util.spec_from_file_location("handler.EndpointHandler", f"{folder}/handler.py")
sys.path.insert(0, folder)
handler = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(handler)
print(json.dumps(handler.EndpointHandler(folder)(json.loads(open(request).read()))))
"""


IMAGE = base64_of(picture(3))
GIVEN = {"normal": [picture(1)], "abnormal": [picture(2)], "masks": [BOX]}
UPLOADED = {"normal": [base64_of(picture(1))], "abnormal": [base64_of(picture(2))], "masks": [BOX]}


@pytest.fixture
def pipe(repository):
    """The pipeline of the package with the same weights and references."""
    pipe = AnomalyDetectionPipeline(
        model=IdealModel.from_pretrained(repository), image_processor=IdealImageProcessor.from_pretrained(repository)
    )
    pipe.set_references(**GIVEN)
    return pipe


@pytest.fixture
def folder(repository, pipe, tmp_path):
    """The repository with a stored set of references."""
    folder = tmp_path / "endpoint"
    shutil.copytree(repository, folder)
    (folder / "references").mkdir()
    references = pipe.set_references(**GIVEN)
    references.save(folder / "references" / "bottle.safetensors")
    return folder


@pytest.fixture
def handler(folder, modules_cache):
    return EndpointHandler(str(folder))


def ask(handler, **request):
    """As the endpoint does: everything passes through JSON, which has no NaN."""
    return json.loads(json.dumps(handler(json.loads(json.dumps(request))), allow_nan=False))


def test_one_image_is_judged_as_by_the_pipeline(handler, pipe):
    expected = pipe(picture(3), threshold=0.3, return_mask=True, return_regions=True, return_overlay=True)
    parameters = {"threshold": 0.3, "return_mask": True, "return_regions": True, "return_overlay": True}
    found = ask(handler, inputs=base64_of(picture(3)), references=UPLOADED, parameters=parameters)
    assert found.pop("warnings") == pipe.encode_references(**GIVEN).warnings
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
    monkeypatch.setattr(handler, "_encode", lambda *given: encoded.append(1) or encode(*given))
    for seed in (3, 4, 5):
        ask(handler, inputs=base64_of(picture(seed)), references=UPLOADED)
    assert len(encoded) == 1
    monkeypatch.setattr(module, "KEPT_REFERENCES", 1)
    for x in (5, 6):
        ask(handler, inputs=base64_of(picture(3)), references={**UPLOADED, "masks": [[0, 0, x, 9]]})
    ask(handler, inputs=base64_of(picture(3)), references=UPLOADED)
    assert len(encoded) == 4, "the oldest was forgotten"
    assert len(handler._known) == 1


def test_references_without_a_threshold_say_so(handler):
    references = {"normal": [base64_of(picture(1))], "false_alarm": 0}
    [found] = ask(handler, inputs=[IMAGE], references=references)
    assert found["threshold"] == 0.5
    assert "not calibrated" in found["warnings"][0]


def test_a_broken_image_among_others_has_an_error_in_its_place(handler):
    images = [base64_of(picture(3)), base64.b64encode(b"no picture").decode(), base64_of(picture(4), "JPEG")]
    first, broken, last = ask(handler, inputs=images, references={"name": "bottle"})
    assert broken.keys() == {"error"}
    assert "inputs[1]: expected an image file" in broken["error"]
    assert "got 10 bytes" in broken["error"]
    assert first == ask(handler, inputs=images[0], references={"name": "bottle"})
    assert last["label"] in ("normal", "anomalous")


def test_an_ignored_region_as_a_picture(handler):
    mask = np.zeros((30, 40), np.uint8)
    mask[:, :20] = 255
    ignored = {"ignore_mask": base64_of(Image.fromarray(mask))}
    found = ask(handler, inputs=base64_of(picture(3)), references={"name": "bottle"}, parameters=ignored)
    assert not image_of(found["anomaly_map"])[:, :20].any()


def test_a_server_loads_it_from_the_folder_of_the_repository(handler, folder, tmp_path):
    request = {"inputs": base64_of(picture(3)), "references": {"name": "bottle"}, "parameters": {"return_map": False}}
    (tmp_path / "request.json").write_text(json.dumps(request))
    command = [sys.executable, "-c", AS_A_SERVER, folder, tmp_path / "request.json"]
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["score"] == pytest.approx(ask(handler, **request)["score"], abs=1e-5)


def test_the_references_of_one_request_are_not_those_of_the_next(handler):
    ask(handler, inputs=IMAGE, references=UPLOADED)
    with pytest.raises(ValueError, match="masks"):
        ask(handler, inputs=IMAGE, references={**UPLOADED, "masks": [base64_of(Image.new("L", (40, 30)))]})
    with pytest.raises(ValueError, match="expected references, got none"):
        handler.pipe(picture(3))


def test_references_are_forgotten_by_their_bytes_too(handler, monkeypatch):
    one = ask(handler, inputs=IMAGE, references=UPLOADED)
    [size] = map(module._num_bytes, handler._known.values())
    assert size > sum(tensor.nbytes for known in handler._known.values() for tensor in known.normal_features)
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * size)
    for x in (5, 6, 7):
        ask(handler, inputs=IMAGE, references={**UPLOADED, "masks": [[0, 0, x, 9]]})
        assert sum(map(module._num_bytes, handler._known.values())) <= 2 * size
    assert handler._known
    monkeypatch.setattr(module, "KEPT_BYTES", size - 1)
    assert ask(handler, inputs=IMAGE, references=UPLOADED) == one
    assert not handler._known


def test_stored_references_that_change_are_read_again(handler, folder, pipe):
    before = ask(handler, inputs=IMAGE, references={"name": "bottle"})
    pipe.set_references(normal=[picture(7)]).save(folder / "references" / "bottle.safetensors")
    after = ask(handler, inputs=IMAGE, references={"name": "bottle"})
    assert after["score"] == pytest.approx(pipe(picture(3))["score"], abs=1e-5)
    assert after["score"] != before["score"]


def test_requests_at_the_same_time_do_not_mix_and_compute_in_one_thread(handler, monkeypatch):
    model, extract, threads = handler.pipe.model, handler.pipe.model.extract_features, set()
    monkeypatch.setattr(model, "extract_features", lambda *given: threads.add(get_ident()) or extract(*given))
    given = [base64_of(picture(seed)) for seed in range(12)]
    requests = [{"inputs": each, "references": {"normal": [given[place % 3]]}} for place, each in enumerate(given)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(handler, requests))
    handler._known.clear()
    assert found == [handler(request) for request in requests]
    assert len(threads) == 1


def test_an_address_is_refused_unless_the_environment_says_otherwise(handler, folder, monkeypatch):
    address = "http://127.0.0.1:9/part.png"
    with pytest.raises(ValueError, match=r"references.normal\[0\]: .*got an address.* IDEAL_FETCH_ADDRESSES=1"):
        ask(handler, inputs=IMAGE, references={"normal": [address]})
    with pytest.raises(ValueError, match=r"inputs: .*IDEAL_FETCH_ADDRESSES=1"):
        ask(handler, inputs=address, references={"name": "bottle"})
    monkeypatch.setenv("IDEAL_FETCH_ADDRESSES", "1")
    open_handler = EndpointHandler(str(folder))
    with pytest.raises(ValueError, match=r"inputs: expected an address with one of the ports"):
        ask(open_handler, inputs=address, references={"name": "bottle"})
    with pytest.raises(ValueError, match=r"inputs: expected a public address, got '127.0.0.1', which is not"):
        ask(open_handler, inputs="http://127.0.0.1/part.png", references={"name": "bottle"})


def test_pictures_that_are_fetched_anew_are_encoded_anew(handler, monkeypatch):
    there = [base64.b64decode(base64_of(picture(seed))) for seed in (1, 2, 3)]
    monkeypatch.setattr(handler, "fetch", lambda *_: there.pop(0))
    scores = [
        ask(handler, inputs=IMAGE, references={"normal": ["https://example.org/good.png"]})["score"] for _ in range(3)
    ]
    assert len(set(scores)) == 3, "the address is the same, the picture is not"


def test_a_score_that_is_no_number_is_an_error(handler, monkeypatch):
    known = handler.pipe.encode_references(normal=[picture(1)])
    monkeypatch.setattr(handler, "_references", lambda *_: known)
    with torch.no_grad():
        known.normal_features[0].fill_(float("nan"))
        known.normal_directions[0].fill_(float("nan"))
    with pytest.raises(ValueError, match=r"finite|NaN|nan"):
        ask(handler, inputs=IMAGE, references=UPLOADED)


def test_a_picture_of_too_many_tiles(handler, folder, pipe, monkeypatch):
    references = pipe.set_references(normal=[picture(1), picture(2)], tiling=True)
    references.save(folder / "references" / "tiles.safetensors")
    found = ask(handler, inputs=IMAGE, references={"name": "tiles"})
    assert found["label"] in ("normal", "anomalous")
    monkeypatch.setattr(module, "MOST_TILES", 1)
    with pytest.raises(ValueError, match=r"inputs: expected at most 1 tiles of \(32, 32\) pixels, got 40 x 30"):
        ask(handler, inputs=IMAGE, references={"name": "tiles"})
    monkeypatch.setattr(module, "LARGEST_TILE_SIDE", 16)
    content = base64.b64encode((folder / "references" / "tiles.safetensors").read_bytes()).decode()
    with pytest.raises(ValueError, match=r"references.file: expected tiles with sides of at most 16, got \(32, 32\)"):
        ask(handler, inputs=IMAGE, references={"file": content})


def test_a_file_of_references_that_is_none(handler, folder):
    content = bytearray((folder / "references" / "bottle.safetensors").read_bytes())
    for broken in (b"", b"\0" * 8, b"\xff" * 64, content[: len(content) // 2], base64.b64decode(IMAGE)):
        text = base64.b64encode(broken).decode()
        with pytest.raises(ValueError, match=r"references.file: .*expected") as raised:
            ask(handler, inputs=IMAGE, references={"file": text})
        assert "/tmp" not in str(raised.value)  # noqa: S108


def hostile(content, change):
    """A file of references whose header, and the header of IDEAL's own in it, are changed."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    own = json.loads(header["__metadata__"]["header"])
    change(header, own)
    header["__metadata__"]["header"] = json.dumps(own)
    changed = json.dumps(header).encode()
    return len(changed).to_bytes(8, "little") + changed + content[8 + length :]


@pytest.mark.parametrize(
    "change",
    [
        lambda header, own: header["normal_features.0"].update(shape=[2**40, 2**10]),
        lambda header, own: header["normal_features.0"].update(dtype="I32"),
        lambda header, own: header["normal_features.0"].update(data_offsets=[0, 2**50]),
        lambda header, own: header["__metadata__"].update(format="ideal-references-99"),
        lambda header, own: own.update(num_sets=10**9),
        lambda header, own: own.update(types=["a"] * 1000),
        lambda header, own: own.update(fingerprint="0" * 64),
        lambda header, own: own.pop("fingerprint"),
        lambda header, own: own.update(calibration=7),
        lambda header, own: own["calibration"].update(threshold=float("nan"), false_alarm=float("nan")),
        lambda header, own: own["calibration"].update(top_fraction=-1),
        lambda header, own: own["calibration"].pop("false_alarm"),
    ],
)
def test_a_hostile_file_of_references(handler, folder, change):
    content = hostile((folder / "references" / "bottle.safetensors").read_bytes(), change)
    with pytest.raises(ValueError, match=r"references") as raised:
        ask(handler, inputs=IMAGE, references={"file": base64.b64encode(content).decode()})
    assert len(str(raised.value)) < 600
    assert not handler._known


def test_a_file_of_references_with_nan_in_it(handler, folder):
    content = (folder / "references" / "bottle.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    broken = content[:start] + b"\xff" * (len(content) - start)
    with pytest.raises(ValueError, match=r"references.file: .*expected"):
        ask(handler, inputs=IMAGE, references={"file": base64.b64encode(broken).decode()})


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"inputs": IMAGE, "references": {"name": "can"}}, r"expected one of \['bottle'\], got 'can'"),
        ({"inputs": IMAGE, "references": {"name": "../model"}}, r"expected one of \['bottle'\], got '../model'"),
        ({"inputs": IMAGE, "references": {"file": IMAGE}}, "expected a safetensors file of IDEAL references"),
        ({"inputs": IMAGE, "references": {"normal": ["7"]}}, r"references.normal\[0\]: expected base64.*, got '7'"),
        ({"inputs": "/etc/passwd", "references": {"name": "bottle"}}, "inputs: expected .*, got '?/etc/passwd"),
        ({"inputs": IMAGE, "references": UPLOADED, "parameters": {"smoothing": 500}}, r"in 0..32, got 500"),
        ({"inputs": IMAGE, "references": UPLOADED, "parameters": {"normal": ["/a.png"]}}, "unknown 'normal'"),
    ],
)
def test_a_request_that_makes_no_sense(handler, request_, message):
    with pytest.raises(ValueError, match=message):
        ask(handler, **request_)
