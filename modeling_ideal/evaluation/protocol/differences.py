"""How far a method is ahead of another, with an interval: a paired bootstrap."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..results_file import IDEAL, PLUG_INS
from .measurement import Measurement, Scores
from .summary import Measured

RESAMPLES = 2_000
COVERAGE = 95  # percent


def differences_to_ideal(measured: Mapping[str, Measured]) -> dict[str, Any]:
    """`{set-up: {setting: {method: {metric: [difference, low, high]}}}}`; empty without IDEAL among the methods.

    A difference is that of IDEAL less the other method, in the mean over reference sets. Both are measured with the
    same sets and queries, so these are drawn with replacement, each with both of its figures. For the image AUROC
    sets and queries are drawn, for the pixel AUROC sets alone: its interval says what other categories and references
    like these would change, not what other test images would.
    """
    if IDEAL not in measured:
        return {}
    return _by_setup({method: (measured[IDEAL], other) for method, other in measured.items() if method != IDEAL})


def gains_of_eraser(measured: Mapping[str, Measured]) -> dict[str, Any]:
    """What the eraser adds to a method: the same with the denoised twin less the plain one, by the twin's name."""
    return _by_setup(
        {
            erased: (measured[erased], measured[plain])
            for plain, erased in PLUG_INS.items()
            if plain in measured and erased in measured
        }
    )


def _by_setup(compared: Mapping[str, tuple[Measured, Measured]]) -> dict[str, Any]:
    """The first of two methods less the second, by a name for the two."""
    result: dict[str, Any] = {}
    for name, both in compared.items():
        pairs: dict[tuple[str, str], list[tuple[str, Measurement, Measurement]]] = {}
        for (references, ours), (_, other) in zip(*both, strict=True):
            for setting in ours["settings"]:
                pairs.setdefault((references.setup, setting), []).append((references.category, ours, other))
        for (setup, setting), of_setup in pairs.items():
            result.setdefault(setup, {}).setdefault(setting, {})[name] = _differences(of_setup, setting)
    return result


def _differences(pairs: Sequence[tuple[str, Measurement, Measurement]], setting: str) -> dict[str, list[float]]:
    """`{metric: [difference, low, high]}` of (category, measurement, other measurement) for each reference set."""
    found = {}
    for name in ("image_auroc", "pixel_auroc"):
        known = [
            (category, ours, other)
            for category, ours, other in pairs
            if None not in (ours["settings"][setting].get(name), other["settings"][setting].get(name))
        ]
        if not known:
            continue
        figures = [[part["settings"][setting][name] for part in both] for _, *both in known]
        values = np.subtract(*np.array(figures).T)
        if name == "image_auroc":
            scores = [(category, ours["scores"][setting], other["scores"][setting]) for category, ours, other in known]
            resampled = 100 * resampled_differences(scores)
        else:
            resampled = np.broadcast_to(values, (RESAMPLES, len(values)))
        found[name] = interval(values, resampled)
    return found


def resampled_differences(sets: Sequence[tuple[str, Scores, Scores]]) -> np.ndarray:
    """Differences of the image AUROC (resamples, sets) when queries are drawn anew, from (category, scores, others).

    A picture is drawn equally often in every set of its category. A set of whose good or of whose defective pictures
    none is drawn keeps the difference that it has.
    """
    generator = np.random.default_rng(0)
    drawn: dict[tuple[str, str], dict[str, np.ndarray]] = {}  # how often each picture is, in each resample
    for kind in ("normal", "anomalous"):
        for category in dict.fromkeys(category for category, _, _ in sets):
            paths = sorted({path for name, ours, _ in sets if name == category for path in ours[kind]})
            counts = generator.multinomial(len(paths), np.full(len(paths), 1 / len(paths)), size=RESAMPLES)
            drawn[category, kind] = dict(zip(paths, counts.T, strict=True))
    columns = []
    for category, ours, other in sets:
        normal, anomalous = (
            np.stack([drawn[category, kind][path] for path in ours[kind]], 1).astype(float)
            for kind in ("normal", "anomalous")
        )
        ahead = _wins(ours) - _wins(other)
        pairs = normal.sum(1) * anomalous.sum(1)
        weighted = ((anomalous @ ahead) * normal).sum(1) / np.maximum(pairs, 1)
        columns.append(np.where(pairs > 0, weighted, ahead.mean()))
    return np.stack(columns, 1)


def _wins(scores: Scores) -> np.ndarray:
    """(anomalous, normal): 1 where the anomalous query scores higher, 1/2 where both score the same."""
    anomalous = np.array(list(scores["anomalous"].values()))[:, None]
    normal = np.array(list(scores["normal"].values()))
    return (anomalous > normal) + 0.5 * (anomalous == normal)


def interval(values: np.ndarray, resampled: np.ndarray) -> list[float]:
    """The mean of values (sets), and the ends of its interval: sets are drawn from each row of (resamples, sets)."""
    draws = np.random.default_rng(1).integers(len(values), size=resampled.shape)
    margin = (100 - COVERAGE) / 2
    means = np.take_along_axis(resampled, draws, 1).mean(1)
    low, high = np.percentile(means, [margin, 100 - margin])
    return [float(values.mean()), float(low), float(high)]
