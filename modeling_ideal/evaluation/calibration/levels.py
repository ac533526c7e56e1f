"""Error rates of calibrated thresholds over many trials, with intervals. Pure functions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .trials import Trial

LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)  # false-alarm rates to wish for
RESAMPLES = 2000


class Rates(NamedTuple):
    """Errors at a threshold, as shares."""

    false_alarms: float  # of the normal images
    misses: float  # of the anomalous images


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def rates_at(threshold: float, trial: Trial) -> Rates:
    """Errors of a trial if scores at or above a threshold are called anomalous."""
    return Rates(float(np.mean(trial.good >= threshold)), float(np.mean(trial.bad < threshold)))


def hindsight(trial: Trial) -> Rates:
    """Errors at the threshold with the smallest sum of both rates. No user has it: it needs the labels."""
    candidates = [*sorted(set(trial.scores)), np.inf]
    return min((rates_at(threshold, trial) for threshold in candidates), key=sum)


def level_reached(trial: Trial, wished: float) -> float:
    """Share of good test images that the threshold for a wished false-alarm rate calls anomalous."""
    return float(np.mean([trial.calibration.confidence(score) >= 1 - wished for score in trial.good]))


def mean_level(trials: Sequence[Trial], wished: float) -> Interval:
    """Mean of `level_reached` over trials."""
    return mean_interval(trials, lambda trial: level_reached(trial, wished))


def mean_interval(trials: Sequence[Trial], value: Callable[[Trial], float]) -> Interval:
    """Mean of a value over trials, each category with the same weight, and its bootstrap interval.

    Categories are drawn with replacement: trials of one category resemble each other, so they do not count as
    independent.
    """
    names = sorted({trial.category for trial in trials})
    means = np.array([np.mean([value(trial) for trial in trials if trial.category == name]) for name in names])
    drawn = np.random.default_rng(0).integers(len(means), size=(RESAMPLES, len(means)))
    low, high = np.quantile(means[drawn].mean(1), (0.025, 0.975))
    return Interval(float(means.mean()), float(low), float(high))
