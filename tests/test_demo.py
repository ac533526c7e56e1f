"""The demo: rendered parts, verdicts on them, a folder one can open."""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from modeling_ideal import IdealImageProcessor
from modeling_ideal.cli import main
from modeling_ideal.demo import command
from modeling_ideal.demo.materials import MATERIALS, render_material
from modeling_ideal.demo.rendering import DEFECTS, SIZE, render_part

from .conftest import tiny_model


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)
    IdealImageProcessor(size=32, patch_size=4).save_pretrained(folder)
    return folder


RENDERED = [("flange", render_part, defect) for defect in DEFECTS]
RENDERED += [
    (name, partial(render_material, name), defect) for name, (_, defects) in MATERIALS.items() for defect in defects
]


@pytest.mark.parametrize(("name", "render", "defect"), RENDERED)
def test_a_defect_changes_the_part_where_its_mask_is_and_nowhere_else(name, render, defect):
    good, bad = render(3), render(3, defect)
    assert good.mask is None
    assert bad.image.size == bad.mask.size == (SIZE, SIZE)
    mask = np.asarray(bad.mask) > 0
    change = np.abs(np.asarray(good.image, int) - np.asarray(bad.image, int)).max(-1)
    assert 50 < mask.sum() < 0.03 * SIZE**2
    assert np.median(change[mask]) > 20
    grown = np.asarray(bad.mask.resize((SIZE // 8, SIZE // 8), Image.Resampling.BOX).resize((SIZE, SIZE))) > 0
    assert np.median(change[~grown]) <= 6


def test_parts_differ_by_seed_and_repeat():
    assert np.array_equal(render_part(1).image, render_part(1).image)
    assert not np.array_equal(render_part(1).image, render_part(2).image)
    with pytest.raises(ValueError, match=r"expected a defect among .*'scratch'.*, got 'crack'"):
        render_part(0, "crack")
    for name in MATERIALS:
        assert np.array_equal(render_material(name, 1).image, render_material(name, 1).image)
        assert not np.array_equal(render_material(name, 1).image, render_material(name, 2).image)
        with pytest.raises(ValueError, match=r"expected a defect among .*'stain'.*, got 'rust'"):
            render_material(name, 0, "rust")


def test_the_demo_writes_a_folder_one_can_open(model_folder, tmp_path, capsys, monkeypatch):
    few = [replace(product, num_normal=2, queries=("good", product.known[0])) for product in command.PRODUCTS[:2]]
    monkeypatch.setattr(command, "PRODUCTS", few)  # tests/test_documents.py runs the whole demo
    out = tmp_path / "demo"
    assert main(["demo", "--model", str(model_folder), "--out", str(out)]) == 0
    assert f"Open {out / 'index.html'}" in capsys.readouterr().out
    rows = json.loads((out / "results.json").read_text())
    assert [row["truth"] for row in rows] == ["good", "scratch", "good", "hole"]
    assert [row["picture"] for row in rows] == [
        f"{place}query_0{number}.png" for place in ("", "cloth/") for number in (0, 1)
    ]
    assert all(0 <= row["score"] <= 1 and row["label"] in ("normal", "anomalous") for row in rows)
    page = (out / "index.html").read_text()
    shown = set(re.findall('href="([^#"]+)"', page))
    assert shown == {file.name for file in out.glob("query_*.png")} | {"cloth/index.html"}
    assert page.count("data:image/jpeg") == 2 + 2 * 2 + 2 * 2  # normal, abnormal with masks, queries with overlays
    assert "in truth: scratch" in page
    assert "No reference shows these defects: dent, missing hole." in page
    assert 'href="../index.html"' in (out / "cloth" / "index.html").read_text()
    assert "The confidence is the estimated share of good parts that score lower." in page
    (out / "notes.txt").write_text("mine")
    assert main(["demo", "--model", str(model_folder), "--out", str(out)]) == 0  # its own files it may replace
    assert (out / "notes.txt").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]
    (out / "query_00.png").write_text("mine too")
    assert main(["demo", "--model", str(model_folder), "--out", str(out)]) == 3
    assert "'query_00.png' was not written by `ideal demo`, or was changed since" in capsys.readouterr().err
    assert (out / "query_00.png").read_text() == "mine too"


def test_the_demo_leaves_other_folders_alone(model_folder, tmp_path, capsys):
    for name in ("mine.txt", "results.json"):
        (tmp_path / name).write_text("mine")
    assert main(["demo", "--model", str(model_folder), "--out", str(tmp_path)]) == 3
    assert "expected a new or empty folder, or one made by `ideal demo`" in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine", "mine"]
    assert main(["demo", "--model", str(model_folder), "--out", str(tmp_path / "mine.txt")]) == 3
    assert "where " in capsys.readouterr().err
