"""What a references file shows of itself: small pictures in it, and `ideal references --show`."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import pipeline

from modeling_ideal import IdealImageProcessor, IdealReferences
from modeling_ideal.cli import main

from .conftest import PATCH, tiny_model
from .pictures import photograph
from .test_references_file import EXAMPLE, rewritten

BOX = (100, 50, 300, 250)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def pipe():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """References as files, larger than what is kept of them."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = {name: folder / f"{name}.png" for name in ("a", "b", "<b>&c", "dent")}
    for seed, path in enumerate(paths.values()):
        Image.fromarray(photograph(seed, (600, 900))).save(path)
    return {
        "normal": [paths["a"], paths["b"], paths["<b>&c"], paths["a"]],
        "abnormal": [paths["dent"], photograph(9, (30, 40))],
        "masks": [BOX, (4, 4, 20, 16)],
        "types": ["dent", "a & b"],
    }


@pytest.fixture(scope="module")
def references(pipe, given):
    return pipe.encode_references(**given)


@pytest.fixture
def file(references, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    references.save("nut.safetensors")
    return tmp_path / "nut.safetensors"


def test_small_pictures_go_with_the_file(references, file):
    loaded = IdealReferences.load(file)
    assert loaded.previews == references.previews
    assert [each.name for each in loaded.previews.normal] == ["a.png", "b.png", "<b>&c.png", "a.png"]
    dent, other = loaded.previews.abnormal
    assert (dent.size, other.size, other.name) == ((600, 900), (30, 40), "")
    assert dent.picture().shape == (299, 448, 3)
    assert other.picture().shape == (30, 40, 3)
    expected = np.asarray(Image.fromarray(photograph(3, (600, 900))).resize((448, 299)), np.int16)
    assert np.abs(dent.picture() - expected).mean() < 3
    rows, columns = dent.marked().nonzero()
    corners = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    assert np.abs(corners - np.array(BOX) * 448 / 900).max() <= 1
    assert all(each.marked() is None for each in loaded.previews.normal)
    assert sum(len(each.jpeg) for each in loaded.previews.normal) < 4 * 40_000


def test_pictures_are_kept_only_if_wanted(pipe, given, tmp_path):
    private = pipe.encode_references(**given, keep_pictures=False)
    private.save(tmp_path / "nut.safetensors")
    assert b"JFIF" not in (tmp_path / "nut.safetensors").read_bytes()
    assert IdealReferences.load(tmp_path / "nut.safetensors").previews is None
    extended = private.extend(pipe, normal=[photograph(5)])
    assert extended.num_normal == 5
    assert extended.previews is None
    longer = replace(pipe.encode_references(**given)).extend(pipe, normal=[photograph(5)])
    assert [each.name for each in longer.previews.normal] == ["a.png", "b.png", "<b>&c.png", "a.png", ""]
    with pytest.raises(ValueError, match="keep_pictures: expected True or False, got 'no'"):
        pipe.encode_references(**given, keep_pictures="no")


def test_tiles_keep_small_pictures_too(pipe):
    tiled = pipe.encode_references(normal=[photograph(1, (60, 90))], tiling=True)
    assert [each.size for each in tiled.previews.normal] == [(60, 90)]


def test_show_says_what_is_in_the_file(references, file, capsys):
    assert main(["references", "--show", "nut.safetensors"]) == 0
    said = capsys.readouterr().out
    assert "4 normal, 2 abnormal, defects marked" in said
    assert "dent, a & b" in said
    assert "whole pictures at 32 x 32 pixels" in said
    assert references.fingerprint[:12] in said
    calibration = references.calibration
    assert f"Threshold {calibration.threshold:.3g}: of new good parts like these, about 5.0% are expected" in said
    lines = said.splitlines()
    [dent] = [line for line in lines if line.startswith("dent.png")]
    assert dent.split() == ["dent.png", "abnormal", "dent", "900", "x", "600", f"{calibration.abnormal_scores[0]:.3g}"]
    assert len(calibration.normal_scores) == 3
    assert sum(f"{calibration.normal_scores[0]:.3g}" in line for line in lines if line.startswith("a.png")) == 2
    assert any(line.endswith("the same as normal 1") for line in lines)
    assert [line for line in lines if line.startswith("warning: ")] == [f"warning: {w}" for w in references.warnings]


def test_show_of_files_that_have_less(capsys, pipe, tmp_path):
    assert main(["references", "--show", str(EXAMPLE)]) == 0
    said = capsys.readouterr().out
    assert "no, it does not keep the features of its pictures" in said
    assert re.search(r"normal 1 +normal +0\.\d+\n", said)
    path = tmp_path / "single.safetensors"
    pipe.encode_references(normal=[photograph(1)]).save(path)
    assert main(["references", "--show", str(path)]) == 0
    assert re.search(r"The normal scores are of 6 altered copies .*: 0\.\d+ to 0\.\d+\.", capsys.readouterr().out)
    pipe.encode_references(normal=[photograph(1)], false_alarm=0).save(path)
    assert main(["references", "--show", str(path), "--out", str(tmp_path / "page.html")]) == 0
    assert "There is no threshold of its own" in capsys.readouterr().out
    assert "<svg" not in (tmp_path / "page.html").read_text()


class _Links(HTMLParser):
    """Collects what a page would load, and whether its tags are closed."""

    def __init__(self):
        super().__init__()
        self.loaded, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.loaded += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag == "line"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_no_other_file(references, file, capsys):
    assert main(["references", "--show", "nut.safetensors", "--out", "page.html"]) == 0
    assert capsys.readouterr().out.endswith("Open page.html\n")
    text = Path("page.html").read_text()
    page = _Links()
    page.feed(text.replace("<!doctype html>", ""))
    assert not page.open
    assert len(page.loaded) == 6
    assert all(link.startswith("data:image/jpeg;base64,") for link in page.loaded)
    assert "&lt;b&gt;&amp;c.png" in text
    assert "<b>&c" not in text
    assert text.count("<circle") == 3 + 2
    assert all(warning.split(":")[0] in text for warning in references.warnings)
    assert main(["references", "--show", "nut.safetensors", "--out", "page.html"]) == 0  # its own page
    assert Path("page.html").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--show", "no.safetensors"], "--show: expected a file made by `ideal references`, got 'no.safetensors'"),
        (["--show", "mine.html"], "expected a safetensors file of IDEAL references"),
        (["--show", "nut.safetensors", "--out", "page.txt"], "--out: expected a file named .html with --show"),
        (["--show", "nut.safetensors", "--out", "mine.html"], "--out: expected a new file or a page of `ideal ref"),
        (["--show", "nut.safetensors", "--out", "no/page.html"], "--out: expected a file in an existing folder"),
        (["--show", "nut.safetensors", "--normal", "x"], "--show: expected no argument but --out with it, got --norm"),
        (["--show", "nut.safetensors", "--false-alarm", "0.1"], "but --out with it, got --false-alarm"),
    ],
)
def test_bad_arguments_are_refused(file, capsys, arguments, message):
    Path("mine.html").write_text("my own page")
    assert main(["references", *arguments]) > 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert Path("mine.html").read_text() == "my own page"
    assert sorted(path.name for path in Path().iterdir()) == ["mine.html", "nut.safetensors"]


ENTRIES = [{"name": "", "size": [4, 4]}] * 3
ANNOUNCED = {"normal": ENTRIES[:2], "abnormal": ENTRIES[:1]}
BYTES = {f"previews.{name}": torch.zeros(5, dtype=torch.uint8) for name in ("normal.0", "normal.1", "abnormal.0")}
DAMAGED = {
    "a list": ({"previews": []}, {}, "expected previews to be small pictures or null"),
    "a name as a number": (
        {"previews": {"normal": [{"name": 1, "size": [1, 1]}], "abnormal": []}},
        {},
        "expected prev",
    ),
    "a size as text": (
        {"previews": {"normal": [{"name": "", "size": "11"}], "abnormal": []}},
        {},
        "expected previews",
    ),
    "bytes alone": ({}, BYTES, "expected the bytes of the small pictures"),
    "no bytes": ({"previews": ANNOUNCED}, {}, "expected the bytes of the small pictures"),
    "one too many": (
        {"previews": ANNOUNCED},
        BYTES | {"previews.x": torch.ones(1).byte()},
        "expected the bytes",
    ),
    "numbers": (
        {"previews": ANNOUNCED},
        BYTES | {"previews.normal.0": torch.zeros(5)},
        "expected the type U8, got F32",
    ),
    "a square": (
        {"previews": ANNOUNCED},
        BYTES | {"previews.normal.0": torch.zeros(5, 5, dtype=torch.uint8)},
        "expected the bytes",
    ),
    "of others": (
        {"previews": {"normal": ENTRIES, "abnormal": []}},
        {f"previews.normal.{index}": torch.zeros(5, dtype=torch.uint8) for index in range(3)},
        "previews: expected 2 normal ones, got 3",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_small_pictures_are_refused(case, tmp_path):
    changes, tensors, message = DAMAGED[case]
    with pytest.raises(ValueError, match=f"bad.safetensors.*{message}"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", tensors, **changes))


def test_what_is_no_small_picture_is_refused_when_it_is_looked_at(references):
    preview = references.previews.normal[0]
    with pytest.raises(ValueError, match="expected small pictures of at most 448 pixels as JPEG, got Unidentified"):
        replace(preview, jpeg=b"nothing").picture()
    with pytest.raises(ValueError, match="as JPEG, got "):
        replace(preview, jpeg=preview.jpeg[:200]).picture()
    large = BytesIO()
    Image.new("RGB", (2000, 10)).save(large, "JPEG")
    with pytest.raises(ValueError, match="of at most 448 pixels as JPEG, got 2000 x 10 pixels"):
        replace(preview, jpeg=large.getvalue()).picture()
    with pytest.raises(ValueError, match="as PNG, got Unidentified"):
        replace(preview, mask=preview.jpeg).marked()
