"""What the page shows of a session, and what a user takes away."""

import csv
import io
import json
import re

import numpy as np
import pytest

from modeling_ideal import IDEAL_TINY, IdealReferences
from modeling_ideal.app import views
from modeling_ideal.app.results import write_references, write_results
from modeling_ideal.app.session import Session
from modeling_ideal.app.uploads import LONGEST_SIDE, Picture
from modeling_ideal.app.verdicts import keep, verdict

from ..pictures import photograph


@pytest.fixture(scope="module")
def taught(detector, files):
    session = Session()
    session.add_references([files[f"good_{place}"] for place in range(3)], defective=False)
    session.calibrate(detector)
    session.judge(detector, [files["part_0"], files["bad_1"]])
    return session


def test_results_report_and_references_are_written(taught):
    taught.reset_threshold()
    results, table, report = write_results(taught, IDEAL_TINY)
    content = json.loads(results.read_text())
    assert content["model"] == "ideal-tiny"
    assert [entry["image"] for entry in content["images"]] == ["part_0.png", "bad_1.png"]
    assert sum(content["counts"].values()) == 2
    assert content["images"][0]["score"] == taught.judged[0].score
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["image"], float(row["score"])) for row in rows] == [
        (judged.picture.name, judged.score) for judged in taught.judged
    ]
    page = report.read_text()
    assert page.count('class="overlay"') == 2
    assert page.count("<figure>") == 3
    assert "chosen by hand" not in page
    assert IdealReferences.load(write_references(taught)).num_normal == 3


def test_a_threshold_that_was_moved_is_in_the_results_and_said_in_the_report(taught):
    taught.move(0.0)
    results, _, report = write_results(taught, "org/ideal")
    assert {entry["label"] for entry in json.loads(results.read_text())["images"]} == {"anomalous"}
    assert {entry["threshold"] for entry in json.loads(results.read_text())["images"]} == {0.0}
    assert re.search(r"Threshold: 0.000, chosen by hand; that of the references is 0\.\d+", report.read_text())


def test_without_references_there_is_nothing_to_write():
    with pytest.raises(ValueError, match="expected references and judged pictures first, got none"):
        write_results(Session(), IDEAL_TINY)
    with pytest.raises(ValueError, match="expected references first, got none"):
        write_references(Session())


def test_the_page_shows_verdicts_at_the_threshold(taught):
    taught.choose("selected", 1)
    for threshold, label, counts in ((0.0, "anomalous", (2, 0)), (1.0, "normal", (0, 2))):
        taught.move(threshold)
        assert [caption.split(",")[0] for _, caption in views.overview(taught)] == [label, label]
        assert "bad_1.png: <span class=" in views.details(taught)
        assert f">{label}</span>" in views.details(taught)
        words = re.sub("<[^>]*>", "", views.summary(taught))
        assert "2 judged: {} anomalous, {} normal".format(*counts) in words
    assert views.details(taught).count("<img") == 2


def test_the_slider_reaches_from_0_to_above_every_score(taught):
    taught.reset_threshold()
    shown = views.slider(taught)
    highest = max([taught.threshold, *(judged.score for judged in taught.judged)])
    assert highest < shown["maximum"] <= 1
    assert shown["value"] == pytest.approx(taught.threshold, rel=1e-3)
    assert shown["step"] <= shown["maximum"] / 100
    taught.move(1.0)
    assert views.slider(taught)["maximum"] == 1.0


def test_names_do_no_harm_in_the_page(taught, files):
    bad = Picture("<script>alert(1)</script>", files["part_0"], (120, 160), photograph(0, (120, 160)), True)
    session = Session(new=[bad], chosen=0, judged=[keep(bad, 0.5, np.zeros((120, 160), np.float32), "<b>")])
    session.choose("selected", 0)
    for shown in (views.chosen(session), views.details(session), views.message("<script>")):
        assert "<script>" not in shown
    assert "&lt;script&gt;" in views.message("<script>\nx")
    assert views.message("") == ""


def test_regions_of_a_large_picture_are_in_its_own_pixels(files):
    shown = photograph(0, (512, LONGEST_SIDE))
    large = Picture("large.png", files["part_0"], (1024, 2 * LONGEST_SIDE), shown)
    anomaly_map = np.zeros(large.size, np.float32)
    anomaly_map[100:140, 200:300] = 0.9
    judged = keep(large, 0.9, anomaly_map, None)
    assert judged.anomaly_map.shape == (512, LONGEST_SIDE)
    [region] = verdict(judged, None, 0.5)["regions"]
    assert region["box"] == (200, 100, 300, 140)
    assert region["area"] == 40 * 100
