"""From the metrics of each reference set to means over categories, and mean and spread over seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...data.reference_sets import ReferenceSet
from ...data.setups import SETTINGS
from ..results_file import Metrics, Summary
from .measurement import Measurement

Measured = Sequence[tuple[ReferenceSet, Measurement]]
"""The measurements of one method, each with its reference set."""


def summaries(measured: Measured) -> dict[str, dict[str, Summary]]:
    """`{set-up: {setting: summary}}` of one method."""
    result: dict[str, dict[str, Summary]] = {}
    for setup in dict.fromkeys(references.setup for references, _ in measured):
        result[setup] = {}
        for setting in SETTINGS:
            metrics = [
                (references.seed, references.category, measurement["settings"][setting])
                for references, measurement in measured
                if references.setup == setup and setting in measurement["settings"]
            ]
            if metrics:
                result[setup][setting] = summarise(metrics)
    return result


def summarise(metrics: Sequence[tuple[int, str, Metrics]]) -> Summary:
    """Summarise (seed, category, metrics): each category's mean over seeds, the mean over categories and its spread.

    The spread is the standard deviation over seeds (n - 1) of the mean over categories; None for a single seed.
    An undefined metric (None) makes every mean that it enters undefined.
    """
    names = list(metrics[0][2])
    categories, mean, spread = {}, {}, {}
    for category in sorted({category for _, category, _ in metrics}):
        categories[category] = {
            name: _mean([values[name] for _, other, values in metrics if other == category]) for name in names
        }
    for name in names:
        seeds = [
            _mean([values[name] for other, _, values in metrics if other == seed])
            for seed in sorted({seed for seed, _, _ in metrics})
        ]
        mean[name] = _mean(seeds)
        known = [value for value in seeds if value is not None]
        spread[name] = float(np.std(known, ddof=1)) if len(known) == len(seeds) > 1 else None
    return {"mean": mean, "spread": spread, "categories": categories}


def difficulties(measured: Measured) -> dict[str, Any]:
    """`{set-up: {category: task difficulty}}`, the mean over the seeds where it is defined."""
    found: dict[str, dict[str, list[float]]] = {}
    for references, measurement in measured:
        if measurement["difficulty"] is not None:
            of_setup = found.setdefault(references.setup, {})
            of_setup.setdefault(references.category, []).append(measurement["difficulty"])
    return {
        setup: {category: _mean(values) for category, values in categories.items()}
        for setup, categories in found.items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
