"""Whatever JSON is sent, the answer is well-formed or a short ValueError."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from hub.handler import EndpointHandler

from .uploads import base64_of, picture

GOOD = base64_of(picture(1))
SEVERAL = base64_of(picture(2), "GIF", save_all=True, append_images=[picture(3)])

scalars = some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=60)
anything = some.recursive(
    scalars, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=9), inner, max_size=4)
)


def mostly(right, wrong=anything):
    """What makes sense, and one time in ten something else; else hardly any request would reach the model."""
    return some.integers(0, 9).flatmap(lambda number: wrong if number == 9 else right)


def few(values):
    """A list of one or two."""
    return mostly(some.lists(values, min_size=1, max_size=2))


def objects(**entries):
    """Objects with some of the entries."""
    return mostly(some.fixed_dictionaries({}, optional=entries))


odd_images = some.sampled_from([SEVERAL, GOOD[:-60], "http://127.0.0.1/", ""]) | anything
images = mostly(some.sampled_from([GOOD, base64_of(picture(4), "JPEG"), base64_of(picture(5))]), odd_images)
numbers = mostly(some.floats(0, 0.49), some.floats() | some.integers() | scalars)
boxes = mostly(some.just([2, 3, 20, 15]), some.lists(some.floats() | some.integers(-9, 50), min_size=4, max_size=4))
polygons = some.lists(some.lists(some.integers(-9, 50), min_size=2, max_size=2), min_size=3, max_size=5)
masks = boxes | polygons | some.lists(boxes | polygons, max_size=3) | images
marked = some.fixed_dictionaries(
    {"abnormal": some.tuples(images).map(list), "masks": some.tuples(masks).map(list)},
    optional={
        "normal": few(images),
        "types": few(some.text(max_size=9)),
        "false_alarm": numbers,
        "max_patches": numbers,
    },
)
references = mostly(
    some.fixed_dictionaries({"normal": few(images)}, optional={"false_alarm": numbers, "max_patches": numbers})
    | marked,
    objects(name=some.text(max_size=20), file=images, normal=few(images), types=few(scalars)),
)
parameters = objects(
    threshold=numbers,
    smoothing=numbers,
    top_fraction=numbers,
    batch_size=mostly(some.integers(1, 3)),
    ignore_mask=masks,
    **{f"return_{name}": mostly(some.booleans()) for name in ("map", "mask", "overlay", "regions")},
)
requests = mostly(
    some.fixed_dictionaries(
        {"inputs": images | few(images), "references": references}, optional={"parameters": parameters}
    )
)


@pytest.fixture(scope="module")
def handler(repository, tmp_path_factory):
    """One for all examples."""
    with pytest.MonkeyPatch.context() as patch:
        modules = tmp_path_factory.mktemp("modules")
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
        patch.syspath_prepend(modules)
        yield EndpointHandler(str(repository))


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(request=requests)
@example(request={"inputs": [GOOD, "", SEVERAL], "references": {"normal": [GOOD]}})
@example(request={"inputs": GOOD, "references": {"abnormal": [GOOD], "masks": [[0, 0, 1e5, 1e5]]}})
@example(request={"inputs": GOOD, "references": {"normal": [GOOD, GOOD]}, "parameters": {"smoothing": 1e-300}})
@example(request={"inputs": GOOD, "references": {"normal": [GOOD]}, "parameters": {"ignore_mask": [0, 0, 40, 30]}})
def test_any_request(handler, request):
    answer, refusal = None, ""
    try:
        answer = handler(request)
    except ValueError as error:
        refusal = str(error)
    if answer is None:
        assert "expected" in refusal
        assert len(refusal) < 800
        return
    json.dumps(answer, allow_nan=False)
    many = isinstance(request["inputs"], list)
    assert isinstance(answer, list) == many
    for result in answer if many else [answer]:
        assert "error" in result or (0 <= result["score"] <= 1 and result["label"] in ("normal", "anomalous"))
