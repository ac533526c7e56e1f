"""Levels of calibration: rates by hand, the whole command against the model's own calls, resuming, bad input."""

import json

import numpy as np
import pytest

from modeling_ideal import Calibration, IdealImageProcessor, IdealModel
from modeling_ideal.calibration import calibrate
from modeling_ideal.data import load_records
from modeling_ideal.data.catalogue import Catalogue
from modeling_ideal.data.reference_sets import draw_references, inference_episodes
from modeling_ideal.evaluation.calibration.__main__ import main
from modeling_ideal.evaluation.calibration.levels import hindsight, level_reached, mean_interval, rates_at
from modeling_ideal.evaluation.calibration.prior import LEVEL_DEGREES, fit_prior
from modeling_ideal.evaluation.calibration.prior import main as prior_command
from modeling_ideal.evaluation.calibration.trials import Trial, Trials
from modeling_ideal.threshold import ScorePrior

GOOD, BAD = (0.1, 0.2, 0.3, 0.6), (0.25, 0.7, 0.8)


def trial(category="bolt", good=GOOD, bad=BAD, references=(0.1, 0.2, 0.3)):
    labels = (0,) * len(good) + (1,) * len(bad)
    return Trial(category, "N3A1", 0, Calibration.from_scores(references), (*good, *bad), labels)


def test_rates_are_counted_from_the_threshold_on():
    assert rates_at(0.5, trial()) == pytest.approx((1 / 4, 1 / 3))
    assert rates_at(0.6, trial()) == pytest.approx((1 / 4, 1 / 3))  # the threshold itself is anomalous
    assert rates_at(0.61, trial()) == pytest.approx((0, 1 / 3))


def test_hindsight_has_the_smallest_sum_of_rates():
    assert hindsight(trial()) == pytest.approx((0, 1 / 3))
    assert all(sum(rates_at(other, trial())) >= 1 / 3 - 1e-9 for other in np.linspace(0, 1, 101))
    assert hindsight(trial(good=(0.2,), bad=(0.4,))) == (0, 0)


@pytest.mark.parametrize("wished", [0.05, 0.2, 0.4])
def test_a_level_is_what_a_threshold_for_it_gives(wished):
    threshold = Calibration.from_scores((0.1, 0.2, 0.3), (), wished).threshold
    assert level_reached(trial(), wished) == rates_at(threshold, trial()).false_alarms


def test_categories_weigh_the_same_and_the_interval_is_over_them():
    trials = [trial("a", good=(0.0,))] * 9 + [trial("b", good=(1.0,))]
    interval = mean_interval(trials, lambda each: float(each.good[0]))
    assert interval == (0.5, 0.0, 1.0)
    assert mean_interval([trial("a")] * 5, lambda each: 0.25) == (0.25, 0.25, 0.25)


def test_the_report_is_what_calibrating_and_scoring_by_hand_gives(target, model_folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "report"
    arguments = ["--model", str(model_folder), "--target", str(target), "--setups", "N2A1", "--seeds", "0", "1"]
    assert main([*arguments, "--out", str(out), "--false-alarm", "0.3"]) == 0
    text = (out / "report.md").read_text()
    assert text in capsys.readouterr().out
    assert "## Errors at a wished level of 30 %" in text
    assert str(target.parent) not in text + (out / "trials.json").read_text()
    assert (out / "levels.png").stat().st_size > 10_000

    model, processor = IdealModel.from_pretrained(model_folder), IdealImageProcessor.from_pretrained(model_folder)
    records = load_records(target)
    catalogue = Catalogue.from_records(records)
    trials = [Trial.from_dict(values) for values in json.loads((out / "trials.json").read_text())]
    [found] = [each for each in trials if (each.category, each.seed) == ("bolt", 1)]
    [references] = [part for part in draw_references(catalogue, "N2A1", 1) if part.category == "bolt"]
    episodes = inference_episodes(catalogue, references)
    inputs = processor(
        query=[records[episode.query]["image"] for episode in episodes],
        normal_refs=[records[index]["image"] for index in episodes[0].normal],
        abnormal_refs=[records[index]["image"] for index in episodes[0].abnormal],
        masks=[records[index]["mask"] for index in episodes[0].abnormal],
    )
    # Features in the cache have half precision.
    np.testing.assert_allclose(found.scores, model(**inputs).scores.detach().numpy(), atol=2e-3)
    del inputs["query"]
    assert found.calibration.threshold == pytest.approx(
        calibrate(model, **inputs, false_alarm=0.3).threshold, abs=1e-5
    )

    monkeypatch.setattr(Trials, "run", lambda *_: pytest.fail("a stored trial was run again"))
    assert main([*arguments, "--out", str(out), "--false-alarm", "0.3"]) == 0
    assert (out / "report.md").read_text() == text


def test_bad_input_is_said_in_one_line(target, model_folder, tmp_path, capsys):
    arguments = ["--model", str(model_folder), "--target", str(target), "--setups", "N2A1", "--false-alarm", "0.7"]
    assert main([*arguments, "--out", str(tmp_path / "report")]) == 3
    assert "false_alarm: expected a share above 0 and below 0.5, got 0.7" in capsys.readouterr().err
    assert not (tmp_path / "report" / "report.md").exists()


def test_the_prior_is_found_again_from_trials_that_follow_it(tmp_path, capsys):
    true = ScorePrior(spread=0.25, degrees=3, decrease=0.0, copy_shift=0.4, copy_spread=0.3)
    random = np.random.default_rng(0)
    trials = []
    for place in range(300):
        spread = true.spread * np.sqrt(true.degrees / random.chisquare(true.degrees))
        centre, category = random.uniform(-3, -2), f"category {place % 6}"
        references, good = np.exp(random.normal(centre, spread, 4)), np.exp(random.normal(centre, spread, 8))
        calibration = Calibration.from_scores(references)
        trials.append(Trial(category, "N4A1", place, calibration, tuple(good), (0,) * 8))
        new = np.exp(centre + random.normal(true.copy_shift, true.copy_spread, 8))
        copies = Calibration.from_scores(np.full(6, np.exp(centre)), num_normal=1)
        trials.append(Trial(category, "N1A1", place, copies, tuple(new), (0,) * 8))
    found = fit_prior(trials)
    assert found.spread == pytest.approx(true.spread, abs=0.03)
    assert found.decrease == pytest.approx(true.decrease, abs=0.1)
    assert found.copy_shift == pytest.approx(true.copy_shift, abs=0.05)
    assert found.copy_spread == pytest.approx(true.copy_spread, abs=0.05)
    (tmp_path / "trials.json").write_text(json.dumps([trial.to_dict() for trial in trials[:60]]))
    assert prior_command([str(tmp_path / "trials.json")]) == 0
    assert "N4A1 1 % -> " in capsys.readouterr().out


def test_a_prior_with_a_level_is_found_again_too():
    true = ScorePrior(spread=0.25, degrees=LEVEL_DEGREES, decrease=0.0, level=-1.8, level_weight=0.8)
    random = np.random.default_rng(0)
    trials = []
    for place in range(300):
        spread = true.spread * np.sqrt(true.degrees / random.chisquare(true.degrees))
        diversity = random.uniform(0.1, 0.4)
        centre = np.log(diversity) + true.level + random.normal(0, spread / np.sqrt(true.level_weight))
        for count in (1, 4):
            references, good = (np.exp(random.normal(centre, spread, number)) for number in (count, 8))
            calibration = Calibration.from_scores(references, diversity=diversity)
            trials.append(Trial(f"category {place % 6}", f"N{count}A1", place, calibration, tuple(good), (0,) * 8))
    found = fit_prior(trials)
    assert found.level == pytest.approx(true.level, abs=0.05)
    assert found.level_weight == pytest.approx(true.level_weight, abs=0.3)  # the least certain of them
    assert found.spread == pytest.approx(true.spread, abs=0.03)
    assert trials[0].with_prior(found).calibration.prior == found
