"""Files that are whole or not there, and tables as text and Markdown."""

import json

import pytest
from matplotlib.figure import Figure
from PIL import Image

from modeling_ideal.writing.files import write_figure, write_json
from modeling_ideal.writing.tables import difference, markdown_table, number, pair, text_table, with_spread


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
