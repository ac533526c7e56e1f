"""The threshold as statistics: what it promises, what it admits, and that it survives JSON."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from modeling_ideal import Calibration

NORMAL, ABNORMAL = (0.30, 0.32, 0.31, 0.33), (0.6, 0.7)
REPEATABLE = settings(derandomize=True, deadline=None, database=None, max_examples=50)
scores = st.floats(0, 1)
groups = st.tuples(st.lists(scores, min_size=1, max_size=8), st.lists(scores, max_size=4))


def test_the_threshold_is_the_upper_limit_of_a_new_normal_score():
    expected = np.mean(NORMAL) + stats.norm.isf(0.1) * np.std(NORMAL, ddof=1) * np.sqrt(1 + 1 / 4)
    assert Calibration.from_scores(NORMAL, false_alarm=0.1).threshold == pytest.approx(expected)
    assert Calibration.from_scores(NORMAL, ABNORMAL, false_alarm=0.1).threshold == pytest.approx(expected)


@pytest.mark.parametrize("false_alarm", [0.05, 0.2])
def test_many_references_keep_the_requested_rate(false_alarm):
    random = np.random.default_rng(0)
    alarms = [
        (random.normal(0.3, 0.05, 500) > Calibration.from_scores(references, (), false_alarm).threshold).mean()
        for references in random.normal(0.3, 0.05, (200, 50))
    ]
    assert np.mean(alarms) == pytest.approx(false_alarm, abs=0.01)


@REPEATABLE
@given(groups, st.floats(0.001, 0.499), st.floats(0.001, 0.499))
def test_a_stricter_wish_never_lowers_the_threshold(both, one, other):
    strict, lax = sorted((one, other))
    assert Calibration.from_scores(*both, strict).threshold >= Calibration.from_scores(*both, lax).threshold


@REPEATABLE
@given(groups, scores, scores)
def test_probability_keeps_the_order_and_is_half_at_the_threshold(both, one, other):
    calibration = Calibration.from_scores(*both)
    low, high = sorted((one, other))
    assert 0 <= calibration.probability(low) <= calibration.probability(high) <= 1
    assert calibration.probability(calibration.threshold) == 0.5


def test_probability_at_the_means_of_the_groups():
    calibration = Calibration.from_scores(NORMAL, ABNORMAL)
    assert calibration.probability(np.mean(NORMAL)) == pytest.approx(0.05)
    assert calibration.probability(np.mean(ABNORMAL)) == pytest.approx(0.95)
    alone = Calibration.from_scores(NORMAL)
    distance = alone.threshold - np.mean(NORMAL)
    assert alone.probability(alone.threshold + distance) == pytest.approx(0.95)


def test_what_so_many_references_support_is_stated():
    few = Calibration.from_scores(NORMAL, false_alarm=0.05)
    assert few.supported_false_alarm == pytest.approx(1 / 5)
    assert "4 normal image(s) support a false-alarm rate of 0.2 at best, 0.05 needs 19" in few.warning
    enough = Calibration.from_scores(NORMAL * 5, ABNORMAL, false_alarm=0.05)
    assert enough.warning is None
    assert not enough.overlap
    copies = Calibration.from_scores(NORMAL, false_alarm=0.4, num_normal=1)
    assert copies.supported_false_alarm == 0.5
    spread = stats.norm.isf(0.4) * np.std(NORMAL, ddof=1)
    assert copies.threshold == pytest.approx(np.mean(NORMAL) + 4 * spread * np.sqrt(2))


def test_groups_that_overlap_bring_a_warning_and_the_middle():
    overlap = Calibration.from_scores(NORMAL * 5, [0.325])
    assert overlap.threshold == pytest.approx((0.315 + 0.325) / 2)
    assert "normal and abnormal references overlap" in overlap.warning
    assert overlap.overlap
    partly = Calibration.from_scores(NORMAL * 5, [0.32, 0.9])
    assert partly.threshold == Calibration.from_scores(NORMAL * 5).threshold
    assert "1 of 2 scores of abnormal references are below the threshold" in partly.warning
    hopeless = Calibration.from_scores(NORMAL * 5, [0.2])
    assert hopeless.threshold == Calibration.from_scores(NORMAL * 5).threshold
    assert "score no higher than the normal ones" in hopeless.warning


def test_equal_references_do_not_make_every_difference_an_anomaly():
    assert Calibration.from_scores([0.3, 0.3, 0.3]).threshold > 0.305


def test_json_keeps_everything():
    calibration = Calibration.from_scores(NORMAL, ABNORMAL)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "normal_scores: expected at least one, got none"),
        (([float("nan")],), "expected finite scores, got"),
        ((NORMAL, (), 0), "false_alarm: expected a share above 0 and below 0.5, got 0"),
        ((NORMAL, (), 0.5), "false_alarm: expected a share above 0 and below 0.5, got 0.5"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Calibration.from_scores(*arguments)


def test_a_foreign_dictionary_is_refused():
    with pytest.raises(ValueError, match=r"calibration: expected the fields .*'threshold'.* got \['level'\]"):
        Calibration.from_dict({"level": 1})
