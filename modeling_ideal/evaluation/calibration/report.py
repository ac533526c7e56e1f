"""Trials of calibration as Markdown tables and a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...writing.tables import markdown_table
from .levels import LEVELS, Interval, hindsight, mean_interval, mean_level, rates_at
from .trials import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
NOTES = """Thresholds come from the references alone. A level is the share of good test pictures called anomalous; the
intervals (95 %) are of the mean over categories. Hindsight is the threshold with the smallest sum of both errors,
found on the test pictures themselves, which no user has."""


def by_setup(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials of each set-up, in the order of the trials."""
    return {
        setup: [trial for trial in trials if trial.setup == setup]
        for setup in dict.fromkeys(trial.setup for trial in trials)
    }


def report(trials: Sequence[Trial], title: str, false_alarm: float) -> str:
    """Levels wished and reached, then errors at one level, then the errors of each category."""
    groups = by_setup(trials)
    levels = [[setup, *(_level(mean_level(group, wished)) for wished in LEVELS)] for setup, group in groups.items()]
    errors = [[setup, *_errors(group, false_alarm)] for setup, group in groups.items()]
    names = sorted({trial.category for trial in trials})
    categories = [
        [name, *(_pair([trial for trial in group if trial.category == name]) for group in groups.values())]
        for name in names
    ]
    wished = f"{100 * false_alarm:.3g} %"
    return "\n\n".join(
        [
            title,
            NOTES,
            "## Level reached, %, for a level wished for",
            markdown_table(["references", *(f"{100 * level:.3g} %" for level in LEVELS)], levels, words=1),
            f"## Errors at a wished level of {wished}",
            markdown_table(
                ["references", "false alarms, %", "misses, %", "hindsight: false alarms", "misses"], errors, words=1
            ),
            f"## Each category: false alarms / misses, %, at {wished}",
            markdown_table(["category", *groups], categories, words=1) + "\n",
        ]
    )


def draw_levels(trials: Sequence[Trial], title: str) -> "Figure":
    """Level reached over level wished for, a line for each set-up; the diagonal is the promise."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(6.4, 5), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    wished = np.geomspace(0.005, 0.4, 30)
    axes.plot(wished, wished, color="0.5", linestyle=":", label="as wished")
    for place, (setup, group) in enumerate(by_setup(trials).items()):
        mean, low, high = np.array([mean_level(group, level) for level in wished]).T
        axes.plot(wished, mean, color=f"C{place}", label=setup)
        axes.fill_between(wished, low, high, color=f"C{place}", alpha=0.12, linewidth=0)
    ticks = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
    axes.set(xscale="log", xlim=(0.005, 0.4), ylim=(0, 0.6))
    axes.set_yscale("symlog", linthresh=0.01)  # a level of zero has a place too
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{100 * tick:.3g} %" for tick in ticks])
        axis.set_minor_locator(NullLocator())
    axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
    axes.set(xlabel="false-alarm rate wished for", ylabel="good pictures called anomalous")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _level(level: Interval) -> str:
    return f"{100 * level.mean:.1f} [{100 * level.low:.1f}, {100 * level.high:.1f}]"


def _errors(trials: Sequence[Trial], false_alarm: float) -> list[str]:
    """False alarms and misses with intervals, then those of hindsight."""
    misses = mean_interval(trials, lambda trial: rates_at(trial.calibration.threshold, trial).misses)
    best = (
        mean_interval(trials, lambda trial: hindsight(trial).false_alarms),
        mean_interval(trials, lambda trial: hindsight(trial).misses),
    )
    return [_level(mean_level(trials, false_alarm)), _level(misses), *(f"{100 * part.mean:.1f}" for part in best)]


def _pair(trials: Sequence[Trial]) -> str:
    """Mean false alarms and misses of the trials of one category."""
    rates = np.mean([rates_at(trial.calibration.threshold, trial) for trial in trials], 0)
    return " / ".join(f"{100 * rate:.0f}" for rate in rates)
