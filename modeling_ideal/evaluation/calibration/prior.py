"""The prior of calibration, from trials on source data.

python -m modeling_ideal.evaluation.calibration.prior TRIALS.json

Finds the `ScorePrior` under which the scores of the good test pictures are most likely, given the scores of the
references, over trials of many categories; and the levels that it reaches on categories it was not fitted to.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ...threshold import LOWEST_SCORE, ScorePrior, next_score
from .levels import LEVELS, mean_level
from .report import by_setup
from .trials import Trial

LEVEL_DEGREES = 6.0  # of a prior with a level; of 3 and 6, which the source was tried with, the better one


def fit_prior(trials: Sequence[Trial]) -> ScorePrior:
    """The most likely prior of trials; with a level, if they know the diversity of their references.

    Without, trials with a single normal reference tell its `copy_` fields, by mean and deviation. Its degrees are not
    fitted: the likelihood hardly depends on them.
    """
    if all(trial.calibration.diversity is not None for trial in trials):
        return _fit(
            trials, ScorePrior(degrees=LEVEL_DEGREES, level=-2.0), ("spread", "level_weight"), ("decrease", "level")
        )
    copies = [trial for trial in trials if trial.num_normal == 1]
    others = [trial for trial in trials if trial.num_normal > 1]
    prior = _fit(others, ScorePrior(), ("spread",), ("decrease",)) if others else ScorePrior()
    if copies:
        shifts = [_logarithms(trial.good) - _logarithms(trial.calibration.normal_scores).mean() for trial in copies]
        mean = float(np.mean([each.mean() for each in shifts]))
        variance = np.mean([np.square(each - mean).mean() for each in shifts])
        prior = replace(prior, copy_shift=mean, copy_spread=float(np.sqrt(variance)))
    return prior


def _fit(trials: Sequence[Trial], start: ScorePrior, positive: Sequence[str], free: Sequence[str]) -> ScorePrior:
    """Search the most likely values of some fields, those that must be positive by their logarithms."""
    from scipy.optimize import minimize

    def prior(values: np.ndarray) -> ScorePrior:
        found = [*np.exp(values[: len(positive)]), *values[len(positive) :]]
        names = (*positive, *free)
        return replace(start, **{name: float(value) for name, value in zip(names, found, strict=True)})

    first = [*(np.log(getattr(start, name)) for name in positive), *(getattr(start, name) for name in free)]
    options = {"xatol": 1e-3, "fatol": 1e-5, "maxiter": 1000}
    found = minimize(lambda values: _surprise(trials, prior(values)), first, method="Nelder-Mead", options=options)
    return prior(found.x)


def held_out_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Each trial with the prior that the other categories give."""
    priors = {
        name: fit_prior([trial for trial in trials if trial.category != name])
        for name in sorted({trial.category for trial in trials})
    }
    return [trial.with_prior(priors[trial.category]) for trial in trials]


def _surprise(trials: Sequence[Trial], prior: ScorePrior) -> float:
    """Minus the mean log-likelihood of good test pictures; each trial has the same weight."""
    from scipy.stats import t

    total = 0.0
    for trial in trials:
        location, scale, degrees = next_score(
            trial.calibration.normal_scores, trial.num_normal, prior, trial.calibration.diversity
        )
        total -= float(np.mean(t.logpdf(_logarithms(trial.good), degrees, location, scale)))
    return total / len(trials)


def _logarithms(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.log(np.maximum(scores, LOWEST_SCORE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the prior, and the levels it reaches on categories that it was not fitted to."""
    parser = argparse.ArgumentParser(prog="python -m modeling_ideal.evaluation.calibration.prior")
    parser.add_argument("trials", metavar="TRIALS.json", help="of `python -m modeling_ideal.evaluation.calibration`")
    trials = [Trial.from_dict(values) for values in json.loads(Path(parser.parse_args(arguments).trials).read_text())]
    print(
        json.dumps(
            {name: value if value is None else round(value, 3) for name, value in asdict(fit_prior(trials)).items()}
        )
    )
    for setup, group in by_setup(held_out_trials(trials)).items():
        reached = (mean_level(group, level).mean for level in LEVELS)
        print(
            setup, *(f"{100 * level:.3g} % -> {100 * each:.1f} %" for level, each in zip(LEVELS, reached, strict=True))
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
