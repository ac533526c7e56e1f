"""The JSON of a request: every part checked, with limits, before anything is computed."""

import pytest

from hub.handler_requests import MOST_IMAGES, MOST_POINTS, MOST_REFERENCES, MOST_SHAPES, check_request

BOX = [2, 3, 20, 15]
TRIANGLE = [[0, 0], [9, 0], [0, 9.5]]
REFERENCES = {"normal": ["a"], "abnormal": ["b"], "masks": [BOX]}
REQUEST = {"inputs": "a", "references": REFERENCES}


def test_a_request_without_what_is_null():
    parameters = {"threshold": None, "smoothing": 0, "return_mask": True, "ignore_mask": [BOX, TRIANGLE]}
    references = {**REFERENCES, "types": None, "false_alarm": 0}
    found = check_request({"inputs": ["a", "b"], "references": references, "parameters": parameters})
    assert found.inputs == ["a", "b"]
    assert found.references == {**REFERENCES, "false_alarm": 0}
    assert found.parameters == {"smoothing": 0, "return_mask": True, "ignore_mask": [BOX, TRIANGLE]}
    assert check_request({**REQUEST, "parameters": None}).parameters == {}
    assert check_request({**REQUEST, "references": {"name": "bottle", "file": None}}).references == {"name": "bottle"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": None}, "request: expected 'inputs', got 'references'"),
        ({"input": "a"}, "request: expected some of inputs, references, parameters, got unknown 'input'"),
        ({"inputs": []}, "inputs: expected at least one image, got an empty list"),
        ({"inputs": 7}, "inputs: expected a list of images, got 7"),
        ({"inputs": {"a": 1}}, "inputs: expected a list of images, got an object of 1 entries"),
        ({"inputs": [["a"]]}, r"inputs\[0\]: expected an image as text, got 'a'"),
        ({"inputs": ["a", None]}, r"inputs\[1\]: expected an image as text, got None"),
        ({"inputs": ["a"] * (MOST_IMAGES + 1)}, "inputs: expected at most 64 images, got 65"),
        ({"parameters": []}, "parameters: expected an object, got a list of 0 entries"),
        ({"parameters": "threshold=1"}, "parameters: expected an object, got 'threshold=1'"),
        ({"references": None}, "references: expected {'name': ...}, .*, got none"),
        ({"references": "bottle"}, "references: expected an object, got 'bottle'"),
        ({"references": {}}, "references: expected {'name': ...}, .*, got none"),
        ({"references": {"names": "a"}}, "references: expected some of name, .*, got unknown 'names'"),
        ({"references": {"name": "a", "file": "b"}}, "references: expected {'name': ...}, .*, got 'file, name'"),
        ({"references": {"name": "a", "normal": ["b"]}}, "references: expected {'name': ...}, .*, got 'name, normal'"),
        ({"references": {"name": ["a"]}}, "references.name: expected text, got 'a'"),
        ({"references": {"file": 7}}, "references.file: expected text, got 7"),
        ({"references": {"types": ["a"]}}, "references: expected {'name': ...}, .*, got 'types'"),
        ({"references": {"normal": []}}, "references: expected 1 to 64 images, got 0"),
        ({"references": {"normal": "a"}}, "references.normal: expected a list of images, got 'a'"),
        ({"references": {"normal": [7]}}, r"references.normal\[0\]: expected an image as text, got 7"),
        (
            {"references": {"normal": ["a"] * MOST_REFERENCES, "abnormal": ["a"]}},
            "references: expected 1 to 64 images, got 65",
        ),
    ],
)
def test_a_request_of_another_form(change, message):
    with pytest.raises(ValueError, match=message):
        check_request({**REQUEST, **change})


@pytest.mark.parametrize("data", [None, [], "inputs", 7, float("nan"), True])
def test_a_request_that_is_no_object(data):
    with pytest.raises(ValueError, match="request: expected an object, got"):
        check_request(data)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("threshold", 1.5, "a number in 0..1, got 1.5"),
        ("threshold", float("nan"), "a number in 0..1, got nan"),
        ("threshold", True, "a number in 0..1, got True"),
        ("threshold", "0.5", "a number in 0..1, got '0.5'"),
        ("threshold", 10**400, "a number in 0..1, got a number of many digits"),
        ("smoothing", 500, "a number in 0..32, got 500"),
        ("smoothing", -1, "a number in 0..32, got -1"),
        ("smoothing", float("inf"), "a number in 0..32, got inf"),
        ("top_fraction", 0, "a number above 0, at most 1, got 0"),
        ("top_fraction", [0.1], "a number above 0, at most 1, got a list of 1 entries"),
        ("batch_size", 10**6, "an integer in 1..16, got 1000000"),
        ("batch_size", 0, "an integer in 1..16, got 0"),
        ("batch_size", 2.0, "an integer in 1..16, got 2.0"),
        ("batch_size", True, "an integer in 1..16, got True"),
        ("return_map", "false", "true or false, got 'false'"),
        ("return_mask", 1, "true or false, got 1"),
        ("return_overlay", {}, "true or false, got an object of 0 entries"),
        ("return_regions", 0.0, "true or false, got 0.0"),
        ("ignore_mask", 7, "a mask, got 7"),
    ],
)
def test_a_parameter_out_of_range(name, value, expected):
    with pytest.raises(ValueError, match=f"parameters.{name}: expected {expected}"):
        check_request({**REQUEST, "parameters": {name: value}})


@pytest.mark.parametrize("name", ["treshold", "normal", "references", "num_workers", "tiling", "x" * 10_000])
def test_an_unknown_parameter(name):
    with pytest.raises(
        ValueError, match=r"parameters: expected some of threshold, .*, got unknown '\w{1,40}'"
    ) as raised:
        check_request({**REQUEST, "parameters": {name: 1}})
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("masks", [], None),
        ("masks", ["b"], None),
        ("masks", [TRIANGLE], None),
        ("masks", [[BOX, TRIANGLE]], None),
        ("masks", [[BOX] * MOST_SHAPES], None),
        ("masks", BOX, "one entry for each of 1 abnormal images, got a list of 4 entries"),
        ("masks", "b", "one entry for each of 1 abnormal images, got 'b'"),
        ("masks", [BOX, BOX], "one entry for each of 1 abnormal images, got a list of 2 entries"),
        ("masks", [None], r"masks\[0\]: expected an image, a box"),
        ("masks", [[]], r"masks\[0\]: expected an image, a box"),
        ("masks", [[5, 5, 5, 9]], r"with x0 < x1 and y0 < y1"),
        ("masks", [[0, 0, float("nan"), 9]], r"masks\[0\]: expected an image, a box"),
        ("masks", [[0, 0, 1e300, 9]], r"coordinates within 100000"),
        ("masks", [[0, 0, 10**400, 9]], r"coordinates within 100000"),
        ("masks", [[False, False, True, True]], r"masks\[0\]: expected an image, a box"),
        ("masks", [[[0, 0], [1, 1]]], r"masks\[0\]: expected an image, a box"),
        ("masks", [[[BOX]]], r"masks\[0\]: expected an image, a box"),
        ("masks", [[[0, 0]] * (MOST_POINTS + 1)], "of 1000 points in all, got more"),
        ("masks", [[BOX] * (MOST_SHAPES + 1)], "at most 100 boxes and polygons"),
        ("types", ["scratch"], None),
        ("types", "scratch", "one entry for each of 1 abnormal images, got 'scratch'"),
        ("types", ["a", "b"], "one entry for each of 1 abnormal images, got 'a, b'"),
        ("types", [7], r"types\[0\]: expected 1 to 100 characters, got 7"),
        ("types", [""], r"types\[0\]: expected 1 to 100 characters, got ''"),
        ("types", ["a" * 101], r"types\[0\]: expected 1 to 100 characters, got 'a{40}'... \(101 characters\)"),
        ("false_alarm", 0.1, None),
        ("false_alarm", 0.5, "references.false_alarm: expected a number in 0..0.5, got 0.5"),
        ("false_alarm", True, "references.false_alarm: expected a number in 0..0.5, got True"),
        ("false_alarm", float("nan"), "references.false_alarm: expected a number in 0..0.5, got nan"),
        ("max_patches", 9, None),
        ("max_patches", 0, "references.max_patches: expected an integer >= 1, got 0"),
        ("max_patches", 9.5, "references.max_patches: expected an integer >= 1, got 9.5"),
    ],
)
def test_masks_types_and_settings(name, value, message):
    request = {**REQUEST, "references": {**REFERENCES, name: value}}
    if message is None:
        assert check_request(request).references.get(name, []) == value
        return
    with pytest.raises(ValueError, match=message) as raised:
        check_request(request)
    assert len(str(raised.value)) < 400
