"""From `results.json` files to what was measured on each target, and whether the paper measured the same."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.setups import Setup
from ..protocol.reference_set_scores import IDEAL
from .paper import DATA_SETS, paper_data_set
from .paper import IDEAL as PAPER_IDEAL

_FIELDS = ("target", "command", "model", "encoder", "seeds", "smoothing", "difficulty", "methods")
_SAME_ON_A_TARGET = ("encoder", "seeds", "smoothing")  # else rows of one table would not differ in the method alone

Figures = dict[str, Any]
"""`{"mean": {name: percent}, "spread": {name: percent}, "categories": {category: {name: percent}}}`."""


@dataclass(frozen=True)
class Target:
    """What one or more evaluations measured on one target folder.

    Args:
        name: of the folder.
        runs: the contents of their results files.
        methods: `{method: {set-up: {setting: figures}}}`; the model itself goes by the paper's name, "IDEAL".
    """

    name: str
    runs: tuple[dict[str, Any], ...]
    methods: dict[str, dict[str, dict[str, Figures]]]

    @property
    def data_set(self) -> str | None:
        """The paper's name of it, if all of its categories were measured; what is compared with the paper."""
        known = paper_data_set(self.name)
        return known if known and len(self.categories()) == DATA_SETS[known].categories else None

    def categories(self, setting: str | None = None) -> list[str]:
        """The categories that were measured in a setting, or in any."""
        return sorted(
            {
                category
                for setups in self.methods.values()
                for settings in setups.values()
                for name, figures in settings.items()
                if setting in (None, name)
                for category in figures["categories"]
            }
        )

    def setups(self, setting: str) -> list[str]:
        """The set-ups that were measured in a setting, from few references to many."""
        return in_order(
            {name for setups in self.methods.values() for name, settings in setups.items() if setting in settings}
        )

    def figures(self, setup: str, method: str, setting: str) -> Figures | None:
        """Of a method, or None where it was not measured."""
        return self.methods.get(method, {}).get(setup, {}).get(setting)

    def difficulty(self, setup: str) -> float | None:
        """The mean over the categories where the task has one."""
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


def read_results(path: str | Path) -> dict[str, Any]:
    """The content of a `results.json`; ValueError where the file is not one."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected the results.json of an evaluation, got no JSON: {error}") from None
    problem = _problem(content)
    if problem:
        raise ValueError(f"{path}: expected the results.json of an evaluation, got {problem}")
    return content


def by_target(results: Sequence[dict[str, Any]]) -> list[Target]:
    """The contents of results files, put together a target; what they have twice must be the same."""
    if not results:
        raise ValueError("expected at least one results.json, got none")
    names = dict.fromkeys(run["target"] for run in results)
    return [_target(name, [run for run in results if run["target"] == name]) for name in names]


def _target(name: str, runs: list[dict[str, Any]]) -> Target:
    methods: dict[str, dict[str, dict[str, Figures]]] = {}
    for run in runs:
        for field in _SAME_ON_A_TARGET:
            if run[field] != runs[0][field]:
                raise ValueError(
                    f"{name}: expected one value of {field!r} in all results of a target, "
                    f"got {runs[0][field]!r} and {run[field]!r}"
                )
        for method, content in run["methods"].items():
            label = PAPER_IDEAL if method == IDEAL else method
            for setup, settings in content["setups"].items():
                known = methods.setdefault(label, {}).setdefault(setup, {})
                for setting, figures in settings.items():
                    if known.setdefault(setting, figures) != figures:
                        raise ValueError(
                            f"{name}: expected one result of {method!r} for {setup}, {setting}, got two that differ"
                        )
    return Target(name, tuple(runs), methods)


def _problem(content: Any) -> str:
    """What keeps a JSON document from being that of an evaluation; empty if nothing does."""
    if not isinstance(content, dict):
        return f"a JSON {type(content).__name__}"
    missing = [name for name in _FIELDS if name not in content]
    if missing:
        return f"an object without {', '.join(missing)}"
    try:
        parts = [
            figures[part]
            for method in content["methods"].values()
            for settings in method["setups"].values()
            for figures in settings.values()
            for part in ("mean", "spread", "categories")
        ]
    except (AttributeError, KeyError, TypeError) as error:
        return f"methods of another form ({type(error).__name__}: {error})"
    return "" if all(isinstance(part, dict) for part in parts) else "methods whose figures are not objects"
