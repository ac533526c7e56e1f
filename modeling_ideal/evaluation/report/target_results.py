"""What was measured on each target, by one or more `results.json`, and whether it can be compared with the paper."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.setups import Setup
from ..results_file import Summary
from .paper import DATA_SETS, NAMES_IN_PAPER, paper_data_set

_SAME_ON_A_TARGET = ("encoder", "seeds", "smoothing")  # else rows of one table would differ in more than the method


@dataclass(frozen=True)
class TargetResults:
    """What one or more evaluations measured on one target folder.

    Args:
        name: of the folder.
        runs: the contents of their results files.
        methods: `{method: {set-up: {setting: summary}}}`; those of the paper go by its names: "IDEAL", "NAGL".
    """

    name: str
    runs: tuple[dict[str, Any], ...]
    methods: dict[str, dict[str, dict[str, Summary]]]

    @property
    def data_set(self) -> str | None:
        """The paper's name of the data set, if all its categories were measured; None: not compared with the paper."""
        known = paper_data_set(self.name)
        return known if known and len(self.categories()) == DATA_SETS[known].categories else None

    def categories(self, setting: str | None = None) -> list[str]:
        """The categories that were measured in a setting, or in any."""
        return sorted(
            {
                category
                for setups in self.methods.values()
                for settings in setups.values()
                for name, summary in settings.items()
                if setting in (None, name)
                for category in summary["categories"]
            }
        )

    def setups(self, setting: str) -> list[str]:
        """The set-ups that were measured in a setting, from few references to many."""
        return in_order(
            {name for setups in self.methods.values() for name, settings in setups.items() if setting in settings}
        )

    def summary(self, setup: str, method: str, setting: str) -> Summary | None:
        """The metrics of a method, or None where it was not measured."""
        return self.methods.get(method, {}).get(setup, {}).get(setting)

    def difficulty(self, setup: str) -> float | None:
        """The mean task difficulty over the categories where it is defined."""
        for run in self.runs:
            if values := list(run["difficulty"].get(setup, {}).values()):
                return float(np.mean(values))
        return None

    def comparability(self) -> str:
        """One sentence: which of the paper's data sets this is, or why it is not compared."""
        known, count = paper_data_set(self.name), len(self.categories())
        if known is None:
            return f"`{self.name}` is not one of the paper's data sets."
        expected = DATA_SETS[known].categories
        if count == expected:
            categories = f"all {expected} categories" if expected > 1 else "its one category"
            return f"`{self.name}` is the paper's {known}, {categories}."
        return (
            f"`{self.name}` has {count} of the {expected} categories of the paper's {known}: "
            "**not comparable with the paper**, whose figures are left out."
        )


def in_order(setups: Collection[str]) -> list[str]:
    """Set-ups from few references to many."""
    return sorted(setups, key=lambda name: (Setup.parse(name).num_normal, Setup.parse(name).num_abnormal))


def group_by_target(results: Sequence[dict[str, Any]]) -> list[TargetResults]:
    """Combine the contents of results files by target; what several of them measured must be the same."""
    if not results:
        raise ValueError("expected at least one results.json, got none")
    names = dict.fromkeys(run["target"] for run in results)
    return [_combine(name, [run for run in results if run["target"] == name]) for name in names]


def _combine(name: str, runs: list[dict[str, Any]]) -> TargetResults:
    methods: dict[str, dict[str, dict[str, Summary]]] = {}
    for run in runs:
        for field in _SAME_ON_A_TARGET:
            if run[field] != runs[0][field]:
                raise ValueError(
                    f"{name}: expected one value of {field!r} in all results of a target, "
                    f"got {runs[0][field]!r} and {run[field]!r}"
                )
        for method, content in run["methods"].items():
            label = NAMES_IN_PAPER.get(method, method)
            for setup, settings in content["setups"].items():
                known = methods.setdefault(label, {}).setdefault(setup, {})
                for setting, summary in settings.items():
                    if known.setdefault(setting, summary) != summary:
                        raise ValueError(
                            f"{name}: expected one result of {method!r} for {setup}, {setting}, got two that differ"
                        )
    return TargetResults(name, tuple(runs), methods)
