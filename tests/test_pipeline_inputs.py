"""What goes into the pipeline: image files in every form, many images among workers, arguments by name."""

import inspect
import io
import multiprocessing
import os
import pickle
import tempfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset
from transformers import pipeline

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel
from modeling_ideal.pipeline_ideal import OPTIONS
from modeling_ideal.pipeline_inputs import read_batches
from modeling_ideal.reference_inputs import ReferenceInputs

from .conftest import PATCH, tiny_model
from .pictures import photograph

MARKED = {"normal": [photograph(1)], "abnormal": [photograph(3)], "masks": [(4, 4, 20, 16)]}


def make_pipe(**arguments):
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(), image_processor=processor, **arguments)


@pytest.fixture
def pipe():
    pipe = make_pipe()
    pipe.set_references(**MARKED)
    return pipe


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return file.getvalue()


class Stream(io.RawIOBase):
    """A file that can be read once, like the body of a request."""

    def __init__(self, content):
        self.content = content

    def readable(self):
        return True

    def read(self, size=-1):
        content, self.content = self.content, b""
        return content


def scores(results):
    return [result["score"] for result in results]


def test_bytes_and_file_objects_are_images(pipe):
    image = photograph(5)
    content = png(image)
    expected = pipe(image)["score"]
    uploaded = tempfile.SpooledTemporaryFile()  # noqa: SIM115 - as a web server hands it over
    uploaded.write(content)  # and not rewound
    kinds = [content, bytearray(content), memoryview(content), io.BytesIO(content), uploaded, Stream(content)]
    assert scores([pipe(kind) for kind in kinds[:-1]]) == [expected] * 5
    assert scores(pipe(kinds)) == [expected] * 6
    assert scores(pipe([content, io.BytesIO(content), Stream(content)], num_workers=1)) == [expected] * 3
    assert scores(pipe(io.BytesIO(content) for _ in range(2))) == [expected] * 2


@pytest.mark.parametrize("form", [bytes, io.BytesIO, Stream])
@pytest.mark.parametrize("tiling", [None, True])
def test_references_and_masks_from_bytes_and_file_objects(pipe, form, tiling):
    mask = np.zeros((30, 40), np.uint8)
    mask[4:16, 4:20] = 255
    normal = [photograph(1), photograph(2)]
    expected = pipe.set_references(normal=normal, abnormal=photograph(3), masks=mask, tiling=tiling)
    references = pipe.set_references(
        normal=[form(png(image)) for image in normal],
        abnormal=form(png(photograph(3))),
        masks=form(png(mask)),
        tiling=tiling,
    )
    assert references.calibration == expected.calibration
    assert torch.equal(references.deviation_vectors, expected.deviation_vectors)


def test_an_ignore_mask_from_a_stream_holds_for_every_image(pipe):
    mask = np.zeros((30, 40), np.uint8)
    mask[:10] = 255
    images = [photograph(5), photograph(6)]
    expected = pipe(images, ignore_mask=mask)
    for form in (bytes, io.BytesIO, Stream):
        assert scores(pipe(images, ignore_mask=form(png(mask)))) == scores(expected)


def test_broken_bytes_are_named_not_echoed(pipe):
    with pytest.raises(ValueError, match=r"^image: 20 bytes: expected a readable image, got Unidentified"):
        pipe(b"not a picture at all")
    with pytest.raises(ValueError, match="image: expected a file opened in binary mode, got str from it"):
        pipe(io.StringIO("text"))
    closed = io.BytesIO(png(photograph(5)))
    closed.close()
    with pytest.raises(ValueError, match="image: expected a readable file, got ValueError"):
        pipe(closed)


def report_process(image, name):
    return {"image": image, "name": name, "process": os.getpid()}


class Numbered(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return f"{index}.png"


@pytest.mark.parametrize("kind", ["list", "generator", "array", "data set"])
def test_every_collection_is_divided_among_the_workers(kind):
    paths = [f"{index}.png" for index in range(6)]
    stack = np.stack([photograph(index) for index in range(6)])
    inputs = {"list": paths, "generator": (path for path in paths), "array": stack, "data set": Numbered()}[kind]
    batches = list(read_batches(inputs, report_process, 2, num_workers=2))
    assert [len(batch) for batch in batches] == [2, 2, 2]
    prepared = [item for batch in batches for item in batch]
    assert [item["name"] for item in prepared] == [f"images[{index}]" for index in range(6)]
    for item, expected in zip(prepared, stack if kind == "array" else paths, strict=True):
        np.testing.assert_array_equal(item["image"], expected)
    processes = {item["process"] for item in prepared}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_what_cannot_be_sent_to_a_worker_is_an_error_and_no_deadlock(pipe, tmp_path):
    Image.fromarray(photograph(5)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:200])
    lazy = Image.open(tmp_path / "cut.png")  # fails when it is decoded
    results = pipe([photograph(5), lambda: None, lazy, (x for x in ()), tmp_path / "whole.png"], num_workers=1)
    assert results[0]["score"] == results[4]["score"]
    assert "images[1]: expected a path, bytes" in results[1]["error"]
    assert "images[2]" in results[2]["error"]
    assert "got generator" in results[3]["error"]


def test_workers_receive_the_processor_and_no_model(pipe, monkeypatch):
    def refuse(self, protocol):
        raise AssertionError("the model is on its way to a worker")

    monkeypatch.setattr(IdealModel, "__reduce_ex__", refuse)
    prepare = pipe._preparation(ignore_mask=(0, 0, 4, 4))
    assert len(pickle.dumps(prepare)) < 5000
    expected = scores([pipe(photograph(5)), pipe(photograph(6))])
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        assert scores(pipe((photograph(seed) for seed in (5, 6)), num_workers=1)) == expected
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_an_iterator_is_read_on_demand(pipe):
    taken = []
    images = (taken.append(seed) or photograph(seed) for seed in range(10, 20))
    results = pipe(images, batch_size=2)
    assert taken == []
    next(results)
    assert taken == [10, 11]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("treshold", "threshold"),
        ("normals", "normal"),
        ("num_worker", "num_workers"),
        ("return_region", "return_regions"),
    ],
)
def test_an_unknown_argument_is_named_with_the_nearest(pipe, name, suggestion):
    with pytest.raises(ValueError, match=rf"arguments among .* got unknown '{name}'; did you mean '{suggestion}'\?"):
        pipe(photograph(5), **{name: 0.4})


def test_unknown_arguments_elsewhere(pipe):
    with pytest.raises(ValueError, match=r"got unknown 'probability'$"):
        make_pipe(probability=1)
    with pytest.raises(
        ValueError, match=r"among references, normal, .*got unknown 'abnormals'; did you mean 'abnormal'"
    ):
        pipe.set_references(abnormals=[photograph(3)])
    accepted = inspect.signature(AnomalyDetectionPipeline._sanitize_parameters).parameters
    assert set(OPTIONS) - {"num_workers", "batch_size"} == set(accepted) - {"self", "references"}


BAD_REFERENCES = {
    "two masks": (
        {"masks": [np.ones((30, 40))] * 2},
        "masks: expected one for each of 1 abnormal images, got 2",
    ),
    "two mask files": ({"masks": ["1.png", "2.png"]}, "masks: expected one for each of 1 .*, got 2"),
    "types of another kind": ({"types": [3]}, r"types: expected names, got \[3\]"),
    "types too many": (
        {"types": ["a", "b"]},
        r"types: expected one for each of 1 abnormal references, got \['a', 'b'\]",
    ),
    "types without": ({"types": "a", "abnormal": None, "masks": None}, "types: expected one for each of 0"),
    "masks by name": (
        {"abnormal": ["3.png", "4.png"], "masks": {"3.png": "3_mask.png", "4.png": "4_mask.png"}},
        "masks: expected one for each of 2 abnormal images, got dict",
    ),
    "one mask file for two": (
        {"abnormal": [photograph(3), photograph(4)], "masks": "ab"},
        "masks: expected one for each of 2 abnormal images, got a single one",
    ),
    "a number as masks": (
        {"abnormal": [photograph(3), photograph(4)], "masks": 3},
        "masks: expected one for each of 2 abnormal images, got int",
    ),
    "types by name": ({"types": {"3.png": "dent"}}, "types: expected a list of names, got dict"),
    "types in no order": ({"types": {"dent"}}, "types: expected a list of names, got set"),
    "a number as types": ({"types": 3}, "types: expected a list of names, got int"),
    "pictures by name": ({"normal": {"1.png": photograph(1)}}, "normal: expected an image or a list of .*, got dict"),
    "pictures in no order": ({"abnormal": {"3.png"}}, "abnormal: expected an image or a list of images, got set"),
    "a percentage": ({"false_alarm": 5}, "false_alarm: expected a number >= 0, below 0.5, got 5"),
    "nested": ({"normal": [[photograph(1)]]}, r"normal\[0\]: expected an image, got list"),
}


@pytest.mark.parametrize("tiling", [None, True])
@pytest.mark.parametrize("case", BAD_REFERENCES)
def test_bad_references_are_refused_before_anything_is_encoded(pipe, monkeypatch, case, tiling):
    monkeypatch.setattr(pipe.model, "extract_features", lambda *_: pytest.fail("encoded before the check"))
    changes, message = BAD_REFERENCES[case]
    with pytest.raises(ValueError, match=message):
        pipe.set_references(**{**MARKED, **changes}, tiling=tiling)


@pytest.mark.parametrize("tiling", [None, True])
def test_a_picture_cannot_be_good_and_defective(pipe, tiling):
    """Found by its content. Scored as if it were new, it would meet itself among the defects: a high threshold."""
    both = {"normal": [photograph(1), photograph(2)], "abnormal": [photograph(3), png(photograph(2))]}
    message = r"expected different pictures .*, got one that is both: normal\[1\] and abnormal\[1\]"
    with pytest.raises(ValueError, match=message):
        pipe.set_references(**both, tiling=tiling)
    if tiling is None:
        pipe.set_references(normal=both["normal"])
        with pytest.raises(ValueError, match="got one that is both"):
            pipe.extend_references(abnormal=photograph(1))


def test_parsing_arguments_encodes_nothing(monkeypatch):
    seen = []
    extract = IdealModel.extract_features
    monkeypatch.setattr(
        IdealModel, "extract_features", lambda self, x, *rest: (seen.append(len(x)), extract(self, x, *rest))[1]
    )
    pipe = make_pipe(**MARKED, false_alarm=0)
    _, forward, _ = pipe._sanitize_parameters(**MARKED)
    assert isinstance(forward["references"], ReferenceInputs)
    assert seen == []
    first = pipe(photograph(5))
    assert sum(seen) == 3  # one normal, one abnormal, one query
    assert pipe(photograph(5))["score"] == first["score"]
    assert sum(seen) == 4
