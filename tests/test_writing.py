"""Files that are whole or not there, and tables as text and Markdown."""

import json
from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from modeling_ideal.pipeline_results import draw_overlay
from modeling_ideal.writing.files import write_figure, write_json
from modeling_ideal.writing.png import rgb_png
from modeling_ideal.writing.tables import difference, markdown_table, number, pair, text_table, with_spread

from .pictures import photograph


@pytest.fixture
def figure():
    """A small figure with a line in it."""
    figure = Figure(figsize=(1, 1), dpi=50)
    figure.add_axes((0, 0, 1, 1)).plot([0, 1])
    return figure


@pytest.fixture
def full_disk(monkeypatch):
    """Every file that is written fails at the last step."""

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)


def test_undefined_numbers_become_null(tmp_path):
    write_json(tmp_path / "a.json", {"a": {"b": float("nan")}, "c": [1.5, (float("nan"), "ü")]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": {"b": None}, "c": [1.5, [None, "ü"]]}
    assert "ü" in text  # readable as it is
    assert text.endswith("}\n")


def test_json_is_written_whole_or_not_at_all(tmp_path, full_disk):
    (tmp_path / "a.json").write_text("earlier")
    with pytest.raises(OSError, match="disk full"):
        write_json(tmp_path / "a.json", {})
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "earlier"


def test_a_figure_has_its_texts_and_neither_date_nor_version(tmp_path, figure):
    write_figure(tmp_path / "a.png", figure, {"Evaluation": "of parts"})
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (50, 50)
        assert {name: value for name, value in picture.info.items() if name != "dpi"} == {"Evaluation": "of parts"}
    write_figure(tmp_path / "b.png", figure)
    write_figure(tmp_path / "c.png", figure)
    assert (tmp_path / "b.png").read_bytes() == (tmp_path / "c.png").read_bytes()


def test_a_figure_is_written_whole_or_not_at_all(tmp_path, figure, full_disk):
    with pytest.raises(OSError, match="disk full"):
        write_figure(tmp_path / "a.png", figure)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        (78.04, 78.5, "-0.5"),  # 78.0 - 78.5: what is shown adds up
        (97.94, 97.9, "+0.0"),
        (97.86, 97.9, "+0.0"),
        (None, 97.9, "-"),
        (97.9, None, "-"),
    ],
)
def test_differences(ours, theirs, shown):
    assert difference(ours, theirs) == shown


def test_cells():
    assert [number(1.25, 2), number(None)] == ["1.25", "-"]
    assert [with_spread(78.06, 0.44), with_spread(78.06, None), with_spread(None, 0.4)] == ["78.1 ± 0.4", "78.1", "-"]
    assert [pair(["1", "2"]), pair(["1", "-"]), pair(["-", "-"])] == ["1 / 2", "1 / -", "-"]


def test_a_markdown_table():
    assert markdown_table(["part", "score"], [["nut", "0.1"]], words=1).splitlines() == [
        "| part | score |",
        "| --- | ---: |",
        "| nut | 0.1 |",
    ]
    assert markdown_table(["part", "score"], [], words=1) == ""


def test_a_bar_in_a_name_does_not_end_the_cell():
    assert markdown_table(["a|b"], [["c"]], words=1).splitlines()[0] == r"| a\|b |"


def test_a_table_for_a_terminal():
    rows = [["nut", "0.1"], ["washer", "0.25", "cannot be read"]]
    assert text_table(["part", "score"], rows, words=1).splitlines() == [
        "part    score",
        "nut       0.1",
        "washer   0.25  cannot be read",
    ]


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (300, 1000), (2, 100_000)])
def test_a_picture_is_the_same_in_its_png(size):
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    content = rgb_png(picture)
    Image.open(BytesIO(content)).verify()  # the checksums
    with Image.open(BytesIO(content)) as opened:
        assert (opened.mode, opened.size) == ("RGB", size[::-1])
        assert np.array_equal(np.asarray(opened), picture)


def test_the_png_of_an_overlay_is_not_much_larger_than_that_of_pillow():
    picture = photograph(3, (300, 400))
    heat = np.linspace(0, 1, 300 * 400, dtype=np.float32).reshape(300, 400)
    overlay = draw_overlay(picture, heat, heat >= 0.5, 0.5)
    thorough = BytesIO()
    overlay.save(thorough, "PNG")
    assert len(rgb_png(np.asarray(overlay))) < 1.3 * len(thorough.getvalue())
