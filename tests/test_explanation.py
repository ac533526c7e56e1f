"""Why a picture is anomalous: the region, the closest good part and the most similar defect, in words and drawn."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import pipeline

from modeling_ideal import IDEAL_TINY, IdealImageProcessor, IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.demo.rendering import render_part
from modeling_ideal.explanation_picture import window_around

from .conftest import PATCH, random_images, tiny_model
from .pictures import photograph

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
KEYS = {"region", "normal", "defect", "text", "picture"}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The embedded model with rendered parts as references."""
    pipe = pipeline("anomaly-detection", model=IDEAL_TINY)
    defects = [render_part(6, "scratch"), render_part(7, "rust")]
    pipe.set_references(
        normal=[render_part(seed).image for seed in (0, 1)],
        abnormal=[part.image for part in defects],
        masks=[part.mask for part in defects],
        types=["scratch", "rust"],
    )
    return pipe


@pytest.fixture(scope="module")
def pipe():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)


def inside(box, size):
    x0, y0, x1, y1 = box
    return 0 <= x0 < x1 <= size[1] and 0 <= y0 < y1 <= size[0]


def plain(value):
    """Whether a value is made of what JSON knows, and tuples."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize(("defect", "seed", "reference"), [("scratch", 6, 0), ("rust", 7, 1), ("rust", 106, 1)])
def test_a_defect_is_found_and_recognised(real, defect, seed, reference):
    part = render_part(seed, defect)
    result = real(part.image, return_explanation=True, threshold=0.0)  # what is shown does not depend on it
    assert result.keys() == {"score", "label", "threshold", "anomaly_map", "confidence", "type", "explanation"}
    explanation = result["explanation"]
    assert explanation.keys() == KEYS
    assert plain({name: value for name, value in explanation.items() if name != "picture"})
    x0, y0, x1, y1 = explanation["region"]["box"]
    assert np.asarray(part.mask)[y0:y1, x0:x1].any()
    assert explanation["defect"]["reference"] == reference
    assert explanation["defect"]["type"] == result["type"] == defect
    x0, y0, x1, y1 = explanation["defect"]["box"]
    marked = np.asarray(render_part(6 + reference, defect).mask) > 0
    assert marked[y0:y1, x0:x1].sum() == marked.sum()
    similarities = [each["similarity"] for each in explanation["normal"]]
    assert all(0 < similarity < 0.99 for similarity in similarities)
    assert f"looks most like the {defect} of abnormal reference {reference + 1}" in explanation["text"]
    assert "It differs most here; the closest good part is in normal reference " in explanation["text"]
    assert isinstance(explanation["picture"], Image.Image)
    red = (np.asarray(explanation["picture"])[130:] == (225, 29, 72)).all(-1)
    assert red[:, :320].any()
    assert red[:, 1000:].any()


def test_a_picture_of_the_references_is_nearest_to_itself(real):
    result = real(render_part(1).image, return_explanation=True)
    assert result["label"] == "normal"
    for each in result["explanation"]["normal"]:
        assert (each["kind"], each["reference"]) == ("normal", 1)
        assert each["box"] == each["patch"]
        assert each["similarity"] == pytest.approx(1, abs=1e-4)
    assert "Normal (score " in result["explanation"]["text"]
    assert "This is its most unusual place" in result["explanation"]["text"]
    drawn = np.asarray(result["explanation"]["picture"])
    assert not (drawn[:, :960] == (225, 29, 72)).all(-1).any()  # nothing red in a good part


@pytest.mark.parametrize(
    "given",
    [
        {"normal": [photograph(1, (60, 90)), photograph(2)]},
        {"normal": [photograph(1)], "abnormal": [photograph(3, (60, 90))]},
        {"abnormal": [photograph(3), photograph(4, (60, 90))], "masks": [(4, 4, 20, 16)] * 2},
        {"abnormal": [photograph(3), photograph(4)]},
        {"normal": [photograph(1)], "abnormal": [photograph(3)], "masks": [(4, 4, 20, 16)], "keep_pictures": False},
    ],
    ids=["normal", "unmarked", "marked alone", "unmarked alone", "without pictures"],
)
def test_whatever_the_references(pipe, given, tmp_path):
    pipe.encode_references(**given).save(tmp_path / "nut.safetensors")
    references = IdealReferences.load(tmp_path / "nut.safetensors")
    result = pipe(photograph(20, (45, 30)), references=references, return_explanation=True, threshold=0.1)
    explanation = result["explanation"]
    kind = "normal" if "normal" in given else "abnormal"
    assert inside(explanation["region"]["box"], (45, 30))
    for each in explanation["normal"]:
        assert each["kind"] == kind
        size = given[kind][each["reference"]].shape[:2] if references.previews else (32, 32)
        assert inside(each["patch"], (45, 30))
        assert inside(each["box"], size)
    if "abnormal" in given:
        defect = explanation["defect"]
        assert inside(
            defect["box"], given["abnormal"][defect["reference"]].shape[:2] if references.previews else (32, 32)
        )
        assert defect["type"] is None
    else:
        assert explanation["defect"] is None
        assert "There is no known defect to compare it with" in explanation["text"]
    assert explanation["picture"].width > 900


def test_without_small_pictures_boxes_are_in_what_the_model_saw():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH, keep_aspect_ratio=True)
    pipe = pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)
    wide = (30, 60)
    given = {"normal": [photograph(1, wide)], "abnormal": [photograph(3, wide)], "masks": [(30, 15, 60, 30)]}
    result = pipe(photograph(5, wide), **given, keep_pictures=False, return_explanation=True)
    height, width = processor.target_size(wide)
    assert result["explanation"]["defect"]["box"][2:] == (width, height)
    assert all(inside(each["box"], (height, width)) for each in result["explanation"]["normal"])


def test_with_other_results_and_for_many_pictures(pipe):
    given = {"normal": [photograph(1), photograph(2)]}
    results = pipe(
        [photograph(5), b"no picture", photograph(6)], **given, return_explanation=True, return_overlay=True
    )
    assert ["explanation" in result for result in results] == [True, False, True]
    assert results[0].keys() == {*pipe(photograph(5), **given, return_overlay=True), "explanation"}
    ignored = pipe(photograph(5), **given, return_explanation=True, ignore_mask=(0, 0, 40, 15))
    assert ignored["explanation"]["region"]["box"][1] >= 15
    assert all(each["patch"][3] > 15 for each in ignored["explanation"]["normal"])


def test_what_cannot_be_explained_is_refused(pipe):
    with pytest.raises(ValueError, match="expected references of whole pictures, got references in tiles"):
        pipe([photograph(5)], normal=[photograph(1)], tiling=True, return_explanation=True)  # before it judges any
    references = pipe.model.encode_references(random_images(2))
    with pytest.raises(ValueError, match="got some of an earlier release or made from tensors, which do not"):
        pipe(photograph(5), references=references, return_explanation=True)
    with pytest.raises(ValueError, match="return_explanation: expected True or False, got 1"):
        pipe(photograph(5), normal=[photograph(1)], return_explanation=1)


@pytest.mark.parametrize(
    ("box", "size", "expected"),
    [
        ((40, 40, 60, 60), (100, 100), (32, 32, 68, 68)),
        ((0, 0, 10, 10), (100, 100), (0, 0, 25, 25)),
        ((90, 90, 100, 100), (100, 100), (75, 75, 100, 100)),
        ((0, 0, 100, 100), (100, 100), (0, 0, 100, 100)),
        ((10, 0, 30, 10), (10, 100), (2, 0, 38, 10)),
    ],
    ids=str,
)
def test_a_crop_shows_the_surroundings_and_stays_inside(box, size, expected):
    assert window_around(box, size) == expected


@pytest.fixture
def workshop(tmp_path, monkeypatch, pipe):
    monkeypatch.chdir(tmp_path)
    pipe.save_pretrained("model")
    pipe.encode_references(normal=[photograph(1), photograph(2)], abnormal=[photograph(3)]).save("nut.safetensors")
    Image.fromarray(photograph(5)).save("part.png")
    return ["explain", "--references", "nut.safetensors", "--model", "model", "--device", "cpu"]


def test_the_command_as_a_process(workshop):
    command = [sys.executable, "-m", "modeling_ideal", *workshop, "part.png", "--out", "why.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, region, good, defect, opens, *warnings = done.stdout.splitlines()
    assert first.startswith("part.png: ")
    assert region.startswith("  region (")
    assert good.startswith("  closest good part: normal reference ")
    assert defect.startswith("  most similar defect: abnormal reference 1 at (")
    assert opens == "Open why.png"
    assert all(line.startswith("warning: ") for line in warnings)
    with Image.open("why.png") as drawn:
        assert drawn.size[0] == 4 * 316 + 16


def test_the_command_replaces_its_own_picture_alone(workshop, capsys):
    assert main([*workshop, "part.png", "--out", "why.png", "--threshold", "0"]) == 0
    before = Path("why.png").read_bytes()
    assert "warning" not in capsys.readouterr().out  # they are about the other threshold
    assert main([*workshop, "part.png", "--out", "why.png", "--threshold", "1"]) == 0
    assert Path("why.png").read_bytes() != before
    assert "Normal (score " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["part.png", "--out", "part.png"], "--out: expected a new file or a picture of `ideal explain` to replace"),
        (["part.png", "--out", "why.jpg"], "--out: expected a file named .png, got 'why.jpg'"),
        (["part.png", "--out", "no/why.png"], "--out: expected a file in an existing folder"),
        (["none.png", "--out", "why.png"], "IMAGE: expected an image file, got 'none.png'"),
        (["nut.safetensors", "--out", "why.png"], "expected a readable image"),
        (["part.png", "--out", "why.png", "--references", "none"], "--references: expected a file made by"),
        (
            ["part.png", "--out", "why.png", "--references", "part.png"],
            "expected a safetensors file of IDEAL references",
        ),
        (["part.png", "--out", "why.png", "--threshold", "2"], "threshold: expected a number in 0..1, got 2.0"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(workshop, capsys, arguments, message):
    before = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert main([*workshop, *arguments]) > 1
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[-1].startswith("ideal: ")
    assert {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
