"""The threshold as statistics: what it promises, what it admits, and that it survives JSON."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from modeling_ideal import Calibration
from modeling_ideal.threshold import LOWEST_SCORE, ScorePrior

NORMAL, ABNORMAL = (0.30, 0.32, 0.31, 0.33), (0.6, 0.7)
REPEATABLE = settings(derandomize=True, deadline=None, database=None, max_examples=50)
scores = st.floats(0, 1)
groups = st.tuples(st.lists(scores, min_size=1, max_size=8), st.lists(scores, max_size=4))


@pytest.mark.parametrize("false_alarm", [0.05, 0.2])
@pytest.mark.parametrize("count", [2, 4, 8, 50])
def test_products_like_the_prior_keep_the_requested_rate(count, false_alarm):
    """Good parts of many products, whose spreads vary as the prior says: the level holds however few they are."""
    prior = ScorePrior(spread=0.2, degrees=5, decrease=0)
    random = np.random.default_rng(count)
    alarms = []
    for _ in range(2000):
        spread = prior.spread * np.sqrt(prior.degrees / random.chisquare(prior.degrees))
        scores = 0.1 * np.exp(random.normal(0, spread, count))
        calibration = Calibration.from_scores(scores.clip(0, 1), (), false_alarm, prior=prior)
        alarms.append(stats.norm.sf(np.log(calibration.threshold / 0.1) / spread))
    assert np.mean(alarms) == pytest.approx(false_alarm, abs=0.02)


@pytest.mark.parametrize("false_alarm", [0.05, 0.2])
@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_products_whose_level_is_as_the_prior_says_keep_the_requested_rate(count, false_alarm):
    """As above, and the scores of a product are in proportion to its diversity: a single good part is enough."""
    prior = ScorePrior(spread=0.2, degrees=5, decrease=0, level=-2, level_weight=0.7)
    random = np.random.default_rng(count)
    alarms = []
    for _ in range(3000):
        diversity = random.uniform(0.1, 0.5)
        spread = prior.spread * np.sqrt(prior.degrees / random.chisquare(prior.degrees))
        centre = np.log(diversity) + prior.level + random.normal(0, spread / np.sqrt(prior.level_weight))
        scores = np.exp(random.normal(centre, spread, count)).clip(0, 1)
        calibration = Calibration.from_scores(scores, (), false_alarm, prior=prior, diversity=diversity)
        alarms.append(stats.norm.sf((np.log(calibration.threshold) - centre) / spread))
    assert np.mean(alarms) == pytest.approx(false_alarm, abs=0.02)


@REPEATABLE
@given(groups, st.floats(0.001, 0.499), st.floats(0.001, 0.499))
def test_a_stricter_wish_never_lowers_the_threshold(both, one, other):
    strict, lax = sorted((one, other))
    assert Calibration.from_scores(*both, strict).threshold >= Calibration.from_scores(*both, lax).threshold


@REPEATABLE
@given(groups, scores, scores, st.floats(0.01, 0.4))
def test_confidence_keeps_the_order_and_meets_the_level_at_the_threshold(both, one, other, false_alarm):
    calibration = Calibration.from_scores(*both, false_alarm)
    low, high = sorted((one, other))
    assume(LOWEST_SCORE < calibration.threshold < 1)  # the range in which scores differ
    assert 0 <= calibration.confidence(low) <= calibration.confidence(high) <= 1
    assert calibration.confidence(calibration.threshold) == pytest.approx(1 - false_alarm)


def test_confidence_is_the_share_of_good_parts_that_score_lower():
    random = np.random.default_rng(0)
    calibration = Calibration.from_scores(random.lognormal(-2, 0.3, 400))
    new = random.lognormal(-2, 0.3, 2000)
    for score in (0.1, 0.13, 0.2):
        assert calibration.confidence(score) == pytest.approx(np.mean(new < score), abs=0.04)


def test_the_distribution_is_a_posterior_of_the_spread():
    """Against the formulas of a scaled inverse chi-squared prior (Gelman et al., Bayesian Data Analysis, 3.3)."""
    prior = ScorePrior(spread=0.3, degrees=5, decrease=0.2)
    logarithms = np.log(NORMAL)
    squares = 5 * 0.3**2 + np.sum((logarithms - logarithms.mean()) ** 2)
    scale = np.sqrt(squares / 8 * (1 + 1 / 4))
    expected = np.exp(logarithms.mean() - 0.2 * np.log(4 / 3) + scale * stats.t.isf(0.1, 8))
    assert Calibration.from_scores(NORMAL, (), 0.1, prior=prior).threshold == pytest.approx(expected)
    assert Calibration.from_scores(NORMAL, ABNORMAL, 0.1, prior=prior).threshold == pytest.approx(expected)


def test_the_distribution_is_a_posterior_of_level_and_spread():
    """Against the formulas of a normal inverse chi-squared prior (Gelman et al., Bayesian Data Analysis, 3.3)."""
    prior = ScorePrior(spread=0.3, degrees=5, decrease=0.2, level=-0.5, level_weight=1.5)
    logarithms, expected = np.log(NORMAL), np.log(0.4) - 0.5
    mean = logarithms.mean() - 0.2 * np.log(4 / 3)
    squares = 5 * 0.3**2 + np.sum((logarithms - logarithms.mean()) ** 2) + 1.5 * 4 / 5.5 * (mean - expected) ** 2
    scale = np.sqrt(squares / 9 * (1 + 1 / 5.5))
    threshold = np.exp((1.5 * expected + 4 * mean) / 5.5 + scale * stats.t.isf(0.1, 9))
    assert Calibration.from_scores(NORMAL, (), 0.1, prior=prior, diversity=0.4).threshold == pytest.approx(threshold)
    without_level = ScorePrior(spread=0.3, degrees=5, decrease=0.2)
    unknown, plain = (Calibration.from_scores(NORMAL, (), 0.1, prior=each) for each in (prior, without_level))
    assert unknown.threshold == plain.threshold  # no diversity is known


def test_the_level_of_a_single_reference_is_its_diversity():
    prior = ScorePrior(spread=0.3, degrees=6, level=-1, level_weight=2)
    expected = np.exp(np.log(0.4) - 1 + 0.3 * np.sqrt(1 + 1 / 2) * stats.t.isf(0.1, 6))
    for copies in (NORMAL, (0.9, 0.001)):  # which say nothing of the level
        found = Calibration.from_scores(copies, (), 0.1, num_normal=1, prior=prior, diversity=0.4)
        assert found.threshold == pytest.approx(expected)


def test_copies_of_one_reference_tell_no_spread():
    prior = ScorePrior(copy_shift=0.4, copy_spread=0.3, degrees=6)
    copies = Calibration.from_scores(NORMAL, (), 0.1, num_normal=1, prior=prior)
    expected = np.exp(np.mean(np.log(NORMAL)) + 0.4 + 0.3 * stats.t.isf(0.1, 6))
    assert copies.threshold == pytest.approx(expected)
    assert Calibration.from_scores(NORMAL[:1], (), 0.1, prior=prior).degrees == 6


def test_what_so_many_references_support_is_stated():
    few = Calibration.from_scores(NORMAL, false_alarm=0.05)
    assert few.supported_false_alarm == pytest.approx(1 / 5)
    assert "4 good pictures alone can support a false-alarm rate of 20% at best, and 5% needs 19:" in few.warning
    one = Calibration.from_scores(NORMAL, false_alarm=0.05, num_normal=1)
    assert "1 good picture alone can support a false-alarm rate of 50% at best" in one.warning
    assert Calibration.from_scores(NORMAL * 5, ABNORMAL, false_alarm=0.05).warning is None
    assert Calibration.from_scores(NORMAL, false_alarm=0.4, num_normal=1).supported_false_alarm == 0.5


@pytest.mark.parametrize(("rate", "needed"), [(0.05, "19"), (1e-9, "over a million"), (5e-324, "over a million")])
def test_a_rate_that_no_number_of_references_supports_is_said_in_few_digits(rate, needed):
    calibration = Calibration.from_scores([0.1, 0.2], false_alarm=rate)
    assert f"needs {needed}: the threshold also rests" in calibration.warning
    assert 0.2 < calibration.threshold <= 1


def test_known_defects_below_the_threshold_bring_a_warning_and_nothing_else():
    alone = Calibration.from_scores(NORMAL * 5)
    missing = Calibration.from_scores(NORMAL * 5, [0.32, 0.9])
    assert missing.threshold == alone.threshold
    assert "1 of 2 scores of abnormal references are below the threshold" in missing.warning
    at_the_threshold = Calibration.from_scores(NORMAL * 5, [alone.threshold])
    assert at_the_threshold.warning is None


def test_a_threshold_that_nothing_can_reach_brings_a_warning():
    assert "nothing will be called anomalous" in Calibration.from_scores([0.9, 1.0, 0.8], false_alarm=0.001).warning
    assert "nothing will" not in Calibration.from_scores([0.3, 0.31], false_alarm=0.1).warning


def test_equal_references_do_not_make_every_difference_an_anomaly():
    assert Calibration.from_scores([0.3, 0.3, 0.3]).threshold > 0.305
    assert Calibration.from_scores([0.0, 0.0, 0.0]).threshold > 0.001
    assert Calibration.from_scores([0.0, 0.0], false_alarm=0.4).threshold == LOWEST_SCORE
    assert Calibration.from_scores([0.9, 1.0, 0.8], false_alarm=0.001).threshold == 1
    sure = ScorePrior(spread=1e-6, degrees=1000, decrease=0)
    assert Calibration.from_scores([0.3, 0.3, 0.3], prior=sure).threshold > 0.305


def test_json_keeps_everything():
    calibration = Calibration.from_scores(NORMAL, ABNORMAL, prior=ScorePrior(spread=0.3))
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"spread": 0}, "score_prior.spread: expected a number > 0, got 0"),
        ({"degrees": float("nan")}, "score_prior.degrees: expected a finite number, got nan"),
        ({"copy_shift": "0.5"}, "score_prior.copy_shift: expected a finite number, got '0.5'"),
        ({"level": "high"}, "score_prior.level: expected a finite number, got 'high'"),
        ({"spread": 1e308}, r"score_prior.spread: expected a number within 100, got 1e\+308"),
        ({"degrees": 1e7}, "score_prior.degrees: expected a number within 1000000, got 10000000"),
        ({"alone": 800}, "score_prior.alone: expected a number within 100, got 800"),
        ({"degrees": 1e-300}, "score_prior.degrees: expected a number >= 0.01, got 1e-300"),
        ({"level_weight": 0}, "score_prior.level_weight: expected a number > 0, got 0"),
    ],
)
def test_a_bad_prior_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        ScorePrior(**values)


def test_a_foreign_dictionary_is_refused():
    with pytest.raises(ValueError, match=r"calibration: expected the fields .*'threshold'.* got \['level'\]"):
        Calibration.from_dict({"level": 1})


def test_scores_of_some_references_alone():
    """They tell no less of the spread, and of the level that all references will give to the next part."""
    scores, prior = [0.2, 0.25, 0.22, 0.24, 0.21], ScorePrior(decrease=0.3)
    all_scored, some = (Calibration.from_scores(scores, (), 0.1, count, prior) for count in (5, 1000))
    assert (some.scale, some.degrees) == (all_scored.scale, all_scored.degrees)
    shift = 0.3 * (math.log(5 / 4) - math.log(1000 / 999))
    assert some.location == pytest.approx(all_scored.location + shift)
    assert some.supported_false_alarm == all_scored.supported_false_alarm == pytest.approx(1 / 6)
    assert "5 good pictures, as many of the 1000 as are scored, alone can support" in some.warning
    assert "5 good pictures alone can support" in all_scored.warning
