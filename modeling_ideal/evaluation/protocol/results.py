"""From the parts of an evaluation to its figures: means over categories, mean and spread over seeds."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.reference_sets import ReferenceSet
from ...writing.files import write_atomically

Parts = Sequence[tuple[ReferenceSet, dict]]


def part_of(unit: dict, method: str) -> dict:
    """What a unit says of one method, as it is kept on disk."""
    return {**unit, "settings": {setting: figures[method] for setting, figures in unit["settings"].items()}}


def join_parts(files: Mapping[str, Path]) -> dict:
    """The unit again from the files of its methods."""
    parts = {method: json.loads(file.read_text()) for method, file in files.items()}
    unit = next(iter(parts.values()))
    settings = {
        setting: {method: part["settings"][setting] for method, part in parts.items()} for setting in unit["settings"]
    }
    return {**unit, "settings": settings}


def by_setup(parts: Parts, method: str) -> dict[str, Any]:
    """`{setup: {setting: {"mean", "spread", "categories"}}}` of one method, in percent."""
    result: dict[str, Any] = {}
    for setup in dict.fromkeys(references.setup for references, _ in parts):
        result[setup] = {}
        for setting in ("general", "hard"):
            figures = [
                (references.seed, references.category, part["settings"][setting][method])
                for references, part in parts
                if references.setup == setup and setting in part["settings"]
            ]
            if figures:
                result[setup][setting] = summarise(figures)
    return result


def summarise(figures: Sequence[tuple[int, str, dict[str, float | None]]]) -> dict[str, Any]:
    """Of (seed, category, figures): each category's mean over seeds, the mean over categories, its spread over seeds.

    The spread is the standard deviation over seeds (n - 1) of the mean over categories; None for a single seed.
    Undefined figures (None) make the means they enter undefined.
    """
    names = list(figures[0][2])
    categories, mean, spread = {}, {}, {}
    for category in sorted({category for _, category, _ in figures}):
        categories[category] = {
            name: _mean([values[name] for _, other, values in figures if other == category]) for name in names
        }
    for name in names:
        seeds = [
            _mean([values[name] for other, _, values in figures if other == seed])
            for seed in sorted({seed for seed, _, _ in figures})
        ]
        mean[name] = _mean(seeds)
        known = [value for value in seeds if value is not None]
        spread[name] = float(np.std(known, ddof=1)) if len(known) == len(seeds) > 1 else None
    return {"mean": mean, "spread": spread, "categories": categories}


def difficulties(parts: Parts) -> dict[str, Any]:
    """Task difficulty a set-up and category, averaged over the seeds where it is defined."""
    found: dict[str, dict[str, list[float]]] = {}
    for references, part in parts:
        if part["difficulty"] is not None:
            found.setdefault(references.setup, {}).setdefault(references.category, []).append(part["difficulty"])
    return {
        setup: {category: _mean(values) for category, values in categories.items()}
        for setup, categories in found.items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def write_json(path: Path, content: Any) -> None:
    """Atomically; NaN, which JSON does not have, becomes null."""
    write_atomically(path, (json.dumps(_without_nan(content), indent=2) + "\n").encode())


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    return None if isinstance(content, float) and math.isnan(content) else content
