"""Bad input of every kind: 500 cases of `make fuzz`, any array at all, and each fault that was found this way."""

import csv
import io

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor
from modeling_ideal.detection.tables import as_csv
from modeling_ideal.image_inputs import load_image
from modeling_ideal.masks import load_area

from .conftest import PATCH, tiny_model
from .fuzz.cases import Finding, run_case
from .fuzz.files import FILES, png, tiff
from .fuzz.running import summary
from .fuzz.samples import SIZE, encoded, smooth
from .fuzz.values import VALUES
from .fuzz.ways import FaultError, Ways, refusals

CASES = 500
PROCESSOR = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)


@pytest.fixture(scope="module")
def ways(repository, tmp_path_factory):
    """One for all cases."""
    with pytest.MonkeyPatch.context() as patch:
        modules = tmp_path_factory.mktemp("modules")
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
        patch.syspath_prepend(modules)
        yield Ways(repository, tmp_path_factory.mktemp("fuzz"))


def test_five_hundred_cases_end_in_a_right_result_or_a_clear_refusal(ways):
    found = [(run_case(ways, seed), 0) for seed in range(CASES)]
    assert not [finding for finding, _ in found if finding.outcome == "fault"], summary(found, 0)
    kinds = {finding.kind for finding, _ in found}
    assert {*FILES, *VALUES} <= kinds  # every kind has had its turn
    assert {finding.outcome for finding, _ in found} == {"judged", "refused"}


numbers = arrays.scalar_dtypes() | arrays.complex_number_dtypes() | arrays.byte_string_dtypes(max_len=3)
shapes = some.sampled_from([SIZE, (*SIZE, 3), (3, *SIZE), (1, 1), (5, 7, 4)]) | arrays.array_shapes(
    max_dims=5, min_side=0
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(array=arrays.arrays(numbers, shapes), as_mask=some.booleans())
def test_any_array_is_read_or_refused(array, as_mask):
    with refusals() as refused:
        if as_mask:
            masks = PROCESSOR(abnormal_refs=[np.zeros(SIZE, np.uint8)], masks=[array])["masks"]
            assert masks.shape == (1, 8 * PATCH, 8 * PATCH)
        else:
            query = PROCESSOR(query=[array])["query"]
            assert query.shape == (1, 3, 8 * PATCH, 8 * PATCH)
            assert torch.isfinite(query).all()
    assert refused or array.dtype.kind in "biuf"


def test_a_fault_is_noticed_and_said(ways, monkeypatch):
    monkeypatch.setattr(ways, "expected", ways.expected + 0.1)  # as if another picture had been judged
    findings = [run_case(ways, seed) for seed in range(20)]
    faults = [finding for finding in findings if finding.outcome == "fault"]
    assert {finding.way for finding in faults} >= {"pipeline"}
    assert all(finding.fault == "another score for the picture beside it" for finding in faults)
    said = summary([(finding, 7) for finding in findings], 100)
    assert f"20 cases, {len(faults)} faults; at most 7 MB of memory" in said
    assert f"seed {100 + findings.index(faults[0])}: " in said
    monkeypatch.setattr(ways, "processor", None)
    assert any("TypeError at ways.py" in run_case(ways, seed).fault for seed in range(20))
    with pytest.raises(FaultError, match="an unclear message: 'no'"), refusals():
        raise ValueError("no")
    assert summary([(Finding("way", "kind", "refused"), 1)], 0).endswith("1 cases, 0 faults; at most 1 MB of memory")


PIXELS = smooth(np.random.default_rng(0))


def damaged_png():
    """One whose pixels are changed, but not their checksum."""
    rows = b"".join(b"\0" + row.tobytes() for row in PIXELS)
    good, bad = png(SIZE, 8, 2, rows), png(SIZE, 8, 2, bytes(len(rows)))
    return bad[:-16] + good[-16:]  # the end of the pixels with the checksum, and the end of the file


REFUSED = {
    "a changed pixel": (damaged_png(), "expected a readable image, got SyntaxError: broken PNG file"),
    "a huge tile": (
        tiff(SIZE, (40_000, 40_000)),
        "got ValueError: tiles of 1,600,000,000 pixels for a picture of 40 x 30",
    ),
    "a program": (encoded(PIXELS, "EPS"), "got ValueError: a file of the format EPS, which is a program"),
    "no format": (b"none", "4 bytes: expected a readable image, got UnidentifiedImageError: the format is none that"),
    "a long name": ("a" * 5000, "^x: a{300}: expected a readable image, got OSError: .{0,300}$"),
    "no pixel": (Image.new("L", (0, 7)), "x: expected at least one pixel, got a picture of 0 x 7"),
    "no row": (np.zeros((0, 7), np.float32), r"x: expected at least one pixel, got shape \(0, 7\)"),
    "no values": (torch.empty(3, 8, 8, device="meta"), "x: expected a dense tensor of numbers, got one of .* on meta"),
    "sparse": (torch.zeros(3, 8, 8).to_sparse(), "x: expected a dense tensor of numbers, got one of .*sparse"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_pictures_are_refused_in_a_sentence(case):
    value, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        load_image(value, "x")


closed = Image.new("L", (4, 4))
closed.close()
MASKS = {
    "text": (np.full((4, 4), "a"), "x: expected an array of integers, floats or booleans, got <U1"),
    "closed": (closed, "x: expected a readable image, got ValueError: Operation on closed image"),
    "an object": (object(), "x: expected an image, an array, a box .*, got object$"),
    "sparse": (torch.zeros(4, 4).to_sparse(), "x: expected a dense tensor of numbers, got one of"),
}


@pytest.mark.parametrize("case", MASKS)
def test_masks_are_refused_in_a_sentence(case):
    value, message = MASKS[case]
    with pytest.raises(ValueError, match=message):
        load_area(value, (4, 4), "x")


@pytest.mark.parametrize("images", [3, None, len])
def test_what_is_no_list_of_pictures_is_refused(images):
    pipe = AnomalyDetectionPipeline(model=tiny_model(), image_processor=PROCESSOR)
    if images is not None:
        with pytest.raises(
            ValueError, match=f"query: expected an image or a list of images, got {type(images).__name__}"
        ):
            PROCESSOR(query=images)
        with pytest.raises(ValueError, match="normal: expected an image or a list of images, got"):
            pipe.encode_references(normal=images)
    with pytest.raises(ValueError, match="image: expected a path, bytes"):
        pipe(images, normal=[PIXELS], false_alarm=0)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_exif_that_cannot_be_read_turns_nothing_whoever_asks_and_how_often(form):
    content = encoded(PIXELS, form, exif=b"Exif\0\0no such thing", lossless=True)
    with Image.open(io.BytesIO(encoded(PIXELS, form, lossless=True))) as plain:
        expected = np.asarray(plain.convert("RGB"))
    opened = Image.open(io.BytesIO(content))
    for image in (content, content, opened, opened):
        assert np.array_equal(load_image(image, "x"), expected)


@pytest.mark.parametrize("mode", ["La", "RGBa"])
def test_modes_with_multiplied_alpha_are_read(mode):
    plain = Image.fromarray(PIXELS).convert("LA" if mode == "La" else "RGBA")
    expected = np.asarray(plain.convert("RGB"))
    assert np.array_equal(load_image(plain.convert(mode), "x"), expected)
    assert load_area(plain.convert(mode), SIZE, "x").any()


def test_a_carriage_return_in_a_name_does_not_tear_the_table():
    content = as_csv([{"image": "in/two\rlines.png", "error": "a\r\nb"}])
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert [(row["image"], row["error"]) for row in rows] == [("in/two\rlines.png", "a\r\nb")]
