"""The report on calibrated thresholds: rates that can be counted by hand."""

import numpy as np
import pytest

from modeling_ideal import IdealImageProcessor, IdealModel, calibrate
from modeling_ideal.data import load_records
from modeling_ideal.data.catalogue import Catalogue
from modeling_ideal.data.reference_sets import draw_references, inference_episodes
from modeling_ideal.evaluation.calibration_report import Rates, best_threshold, main

SCORES, LABELS = np.array([0.1, 0.2, 0.3, 0.6, 0.25, 0.7, 0.8]), np.array([0, 0, 0, 0, 1, 1, 1])


def test_rates_are_counted_above_the_threshold():
    assert Rates.at(0.5, SCORES, LABELS) == pytest.approx((25, 100 / 3))
    assert Rates.at(0.6, SCORES, LABELS) == pytest.approx((0, 100 / 3))  # the threshold itself is still normal


def test_the_best_threshold_has_the_smallest_sum_of_rates():
    best = best_threshold(SCORES, LABELS)
    assert Rates.at(best, SCORES, LABELS) == pytest.approx((0, 100 / 3))
    assert all(sum(Rates.at(other, SCORES, LABELS)) >= 33.3 for other in np.linspace(0, 1, 101))
    assert Rates.at(
        best_threshold(np.array([0.2, 0.4]), np.array([0, 1])), np.array([0.2, 0.4]), np.array([0, 1])
    ) == (0, 0)


def test_the_table_is_what_calibrating_and_scoring_by_hand_gives(target, model_folder, tmp_path, capsys):
    out = tmp_path / "report" / "calibration.md"
    arguments = ["--model", str(model_folder), "--target", str(target), "--setup", "N2A1", "--seeds", "0", "1"]
    assert main([*arguments, "--out", str(out), "--false-alarm", "0.3"]) == 0
    text = out.read_text()
    assert text in capsys.readouterr().out
    rows = {
        line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in text.splitlines() if "|" in line
    }
    assert {"bolt", "nut", "mean"} <= set(rows)
    assert "a requested false-alarm rate of 30 %." in text
    assert "support 33.3 % at best" in text
    assert str(target.parent) not in text

    model, processor = IdealModel.from_pretrained(model_folder), IdealImageProcessor.from_pretrained(model_folder)
    records = load_records(target)
    catalogue = Catalogue.from_records(records)
    thresholds, rates = [], []
    for seed in (0, 1):
        [references] = [part for part in draw_references(catalogue, "N2A1", seed) if part.category == "bolt"]
        episodes = inference_episodes(catalogue, references)
        inputs = processor(
            query=[records[episode.query]["image"] for episode in episodes],
            normal_refs=[records[index]["image"] for index in episodes[0].normal],
            abnormal_refs=[records[index]["image"] for index in episodes[0].abnormal],
            masks=[records[index]["mask"] for index in episodes[0].abnormal],
        )
        scores = model(**inputs).scores.detach().numpy()
        del inputs["query"]
        thresholds.append(calibrate(model, **inputs, false_alarm=0.3).threshold)
        called = scores > thresholds[-1]
        labels = np.array([records[episode.query]["label"] for episode in episodes])
        rates.append((100 * called[labels == 0].mean(), 100 * (1 - called[labels == 1].mean())))
    assert float(rows["bolt"][2]) == pytest.approx(np.mean(thresholds), abs=6e-4)
    assert [float(cell) for cell in rows["bolt"][3:5]] == pytest.approx(np.mean(rates, 0), abs=0.06)


def test_bad_input_is_said_in_one_line(target, model_folder, tmp_path, capsys):
    arguments = ["--model", str(model_folder), "--target", str(target), "--setup", "N2A1", "--false-alarm", "0.7"]
    assert main([*arguments, "--out", str(tmp_path / "report.md")]) == 2
    assert "false_alarm: expected a share above 0 and below 0.5, got 0.7" in capsys.readouterr().err
    assert not (tmp_path / "report.md").exists()
