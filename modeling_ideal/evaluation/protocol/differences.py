"""How far IDEAL is ahead of each other method, with an interval: a paired bootstrap over reference sets."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..results_file import IDEAL
from .summary import Measured

COMPARED = ("image_auroc", "pixel_auroc")
RESAMPLES = 10_000
COVERAGE = 95  # percent


def differences_to_ideal(measured: Mapping[str, Measured]) -> dict[str, Any]:
    """`{set-up: {setting: {method: {metric: [difference, low, high]}}}}`; empty without IDEAL among the methods.

    A difference is that of IDEAL less the other method, in the mean over reference sets. Both are measured with the
    same sets, so sets are drawn with replacement, each with both of its figures. The interval says what other
    categories and references like these would change, not what other test images would.
    """
    if IDEAL not in measured:
        return {}
    result: dict[str, Any] = {}
    for method, own in measured.items():
        if method == IDEAL:
            continue
        pairs: dict[tuple[str, str, str], list[float]] = {}
        for (references, ours), (_, other) in zip(measured[IDEAL], own, strict=True):
            for setting, metrics in ours["settings"].items():
                for name in COMPARED:
                    first, second = metrics.get(name), other["settings"][setting].get(name)
                    if first is not None and second is not None:
                        pairs.setdefault((references.setup, setting, name), []).append(first - second)
        for (setup, setting, name), values in pairs.items():
            of_method = result.setdefault(setup, {}).setdefault(setting, {}).setdefault(method, {})
            of_method[name] = interval(values)
    return result


def interval(values: list[float]) -> list[float]:
    """The mean of some values, and the ends of its bootstrap interval."""
    given = np.asarray(values)
    draws = np.random.default_rng(0).integers(len(given), size=(RESAMPLES, len(given)))
    margin = (100 - COVERAGE) / 2
    low, high = np.percentile(given[draws].mean(1), [margin, 100 - margin])
    return [float(given.mean()), float(low), float(high)]
