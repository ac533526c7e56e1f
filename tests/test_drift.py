"""A stream that leaves its references is noticed; defects alone are not drift."""

import json

import numpy as np
import pytest
import torch

from modeling_ideal import IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.detection.drift import FEWEST, RECENT, DriftWatch
from modeling_ideal.reference_scores import NOT_JUDGED, ReferenceScores

from .test_line import DETECT, at_line, line  # noqa: F401 - fixtures


def references(count=4, seed=0):
    """References whose patches score about 0.1, each picture a little differently."""
    random = np.random.default_rng(seed)
    levels = 0.1 * np.exp(random.normal(0, 0.1, (count, 1, 1)))
    scores = torch.tensor(levels * np.exp(random.normal(0, 0.2, (count, 16, 16))), dtype=torch.float32)
    found = ReferenceScores(scores, torch.zeros(0, 0, 0), None, count)
    calibration = found.calibrate(0.01, 0.05)
    return IdealReferences([torch.zeros(1, 4)], num_normal=count, scores=found, calibration=calibration)


def picture(random, level=1.0, defect=False):
    """The anomaly map of a good or a bad part, under a light that changes all scores by a factor."""
    shown = level * 0.1 * np.exp(random.normal(0, 0.1)) * np.exp(random.normal(0, 0.2, (16, 16)))
    if defect:
        shown[2:7, 2:9] = 0.9
    return shown.astype(np.float32)


def test_a_line_full_of_defects_is_no_drift():
    random = np.random.default_rng(1)
    for share in (0.0, 0.3, 1.0):
        watch = DriftWatch(references())
        assert [watch.add(picture(random, defect=random.random() < share)) for _ in range(100)] == [None] * 100


def test_another_light_is_drift_and_the_end_of_it_is_noticed():
    random = np.random.default_rng(2)
    watch = DriftWatch(references())
    assert not any(watch.add(picture(random)) for _ in range(RECENT))
    said = [watch.add(picture(random, level=2.0)) for _ in range(RECENT)]
    assert said[0] is None  # one picture is no stream
    assert said[-1].startswith(f"the last {RECENT} pictures differ from the references all over")
    assert said[-1].count("\n") == 0
    assert any(warning is None for warning in [watch.add(picture(random)) for _ in range(RECENT)])


def test_it_takes_a_few_pictures_to_say_anything():
    random = np.random.default_rng(3)
    watch = DriftWatch(references())
    said = [watch.add(picture(random, level=3.0)) for _ in range(FEWEST)]
    assert said[:-1] == [None] * (FEWEST - 1)
    assert f"the last {FEWEST} pictures" in said[-1]


def test_references_without_scores_say_nothing():
    watch = DriftWatch(IdealReferences([torch.zeros(1, 4)], num_normal=1))
    assert watch.limit is None
    assert not any(watch.add(np.ones((4, 4), np.float32)) for _ in range(RECENT))


@pytest.mark.parametrize("tiles", [1, 3])
def test_typical_scores_are_medians_of_normal_patches(tiles):
    normal = torch.rand(2, tiles, 4, 4)
    found = ReferenceScores(normal, torch.zeros(0, 0, 0, 0), None, 2).typical_scores()
    assert found == pytest.approx([float(part.flatten().sort().values[(part.numel() - 1) // 2]) for part in normal])
    marked = torch.zeros(1, 4, 4, dtype=torch.bool)
    marked[:, 1:3] = True
    abnormal = torch.where(marked, 0.9, 0.2)
    assert ReferenceScores(torch.zeros(0, 0, 0), abnormal, marked, 1).typical_scores() == pytest.approx([0.2])


def test_patches_of_a_tile_that_another_tile_judges_do_not_count():
    """They have no score; zeros in their place would lower the median, and good parts would seem to have drifted."""
    scores = torch.full((2, 2, 4, 4), NOT_JUDGED)
    scores[:, 0, :, :1], scores[:, 1, :, 3:] = 0.2, 0.4
    found = ReferenceScores(scores, torch.zeros(0, 0, 0, 0), None, 2, smoothing=0.5).typical_scores()
    assert found == pytest.approx([0.2, 0.2])


def test_drift_is_in_the_table_the_results_and_the_report(at_line, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr("modeling_ideal.detection.drift.DriftWatch.add", lambda *_: "it is <dark>")
    assert main([*DETECT, "parts/000.png", "parts/001.png", "--threshold", "1"]) == 0
    assert "warning: at parts/000.png: it is <dark>" in capsys.readouterr().out
    assert json.loads((at_line / "found" / "results.json").read_text())["drift"] == "at parts/000.png: it is <dark>"
    assert "at parts/000.png: it is &lt;dark&gt;" in (at_line / "found" / "report.html").read_text()
