"""Sweeps over the method's settings (appendices E and F): train with each value, measure on held-out categories.

    python -m modeling_ideal.evaluation.sweeps --source DIR --backbone NAME --held_out grid pill --output_dir DIR

A sweep changes one setting of the paper's model and nothing else. Every point is a short training run in a folder of
its own, so a sweep that was stopped resumes where it was. Writes sweeps.json and one picture per sweep and set-up.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.head.options import HeadTrainingOptions
from ..training.head.run import train_head
from ..training.options import add_options, read_options
from ..writing.files import write_figure, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Change = dict[str, Any]  # fields of IdealConfig or of HeadTrainingOptions
NO_DUAL: Change = {"discriminability_weight": 0, "orthogonality_weight": 0}


def _values(name: str, *values: Any) -> dict[str, Change]:
    return {str(value): {name: value} for value in values}


SWEEPS: dict[str, dict[str, Change]] = {
    "neighbours k": _values("num_neighbors", 6, 8, 12, 24),
    "components r": _values("num_components", 1, 2, 4, 8),
    "erase strength alpha": _values("erase_strength", 0, 0.2, 0.5, 0.8, 1),
    "deviation vectors M": _values("num_deviation_vectors", 5, 15, 45, 90),
    "discriminability weight lambda1": _values("discriminability_weight", 0, 0.5, 1.0, 2.0),
    "orthogonality weight lambda2": _values("orthogonality_weight", 0, 0.4, 0.8, 1.6),
    "loss terms": {
        "focal, dice": {"image_weight": 0, **NO_DUAL},
        "+ image": NO_DUAL,
        "+ dual": {"image_weight": 0},
        "all": {},
    },
    "loss form": _values("loss_form", "single_map", "two_channel"),
    "residual anchor": _values("residual_anchor", "nearest", "centroid"),
    "alignment": _values("alignment", "cosine", "euclidean", "contrast"),
    "shared normals": _values("share_normals", False, True),
    "patch smoothing": _values("patch_smoothing", 0.0, 0.5, 0.7, 1.0),
    "top fraction": _values("top_fraction", 0.001, 0.003, 0.01, 0.03),
    "stage": _values("stage", "stage6", "stage8", "stage9", "stage10", "stage12"),
    "stages together": _values("stage", "stage6", "stage9", "stage6+stage9"),
    "epochs": _values("epochs", 4, 8, 16),
}
LEAST_RANGE = 6.0  # percentage points that a plot covers at least, so that noise looks like noise
PLOTTED = {"image_auroc": "image AUROC", "pixel_auroc": "pixel AUROC"}


def run_sweeps(base: HeadTrainingOptions, names: Sequence[str], out: Path) -> dict[str, Any]:
    """Train and measure every point of these sweeps around `base`; writes `out / "sweeps.json"` and the pictures."""
    unknown = sorted(set(names) - set(SWEEPS))
    if unknown:
        raise ValueError(f"sweeps: expected some of {list(SWEEPS)}, got {unknown}")
    if not base.held_out:
        raise ValueError("expected categories of the source to measure on, got no --held_out")
    sweeps = {}
    for name in names:
        points = {label: _measure(base, change, out / "runs") for label, change in SWEEPS[name].items()}
        sweeps[name] = points
        for setup in base.setups:
            write_figure(out / f"{name.replace(' ', '_')}_{setup}.png", draw_sweep(name, setup, points))
    record = {"arguments": _public(base), "sweeps": sweeps}
    write_json(out / "sweeps.json", record)
    return record


def _measure(base: HeadTrainingOptions, change: Change, runs: Path) -> dict[str, dict[str, float]]:
    """`{set-up: metrics}`, means over the held-out categories at the end of a run with this change."""
    arguments = change_arguments(base, change, runs)
    record = train_head(arguments)
    return {setup: summary["mean"] for setup, summary in record["validation"][-1]["setups"].items()}


def change_arguments(base: HeadTrainingOptions, change: Change, runs: Path) -> HeadTrainingOptions:
    """The arguments of one point; points with the same settings share a run."""
    given = {field.name for field in fields(HeadTrainingOptions)} & set(change)
    changed = replace(base, **{key: change[key] for key in given})
    config = {**DEFAULTS, **base.config_values(), **{key: change[key] for key in set(change) - given}}
    config = {key: value for key, value in config.items() if value != DEFAULTS.get(key)}
    others = [f"{key}={change[key]}" for key in sorted(given - {"stage"}) if change[key] != getattr(base, key)]
    name = "-".join([changed.stage or "last", *others, *(f"{key}={config[key]}" for key in sorted(config))])
    pairs = [f"{key}={json.dumps(value)}" for key, value in sorted(config.items())]
    return replace(changed, config=pairs, output_dir=str(runs / name))


def _defaults() -> Mapping[str, Any]:
    """The paper's value of every setting that a sweep changes."""
    from ..configuration_ideal import IdealConfig

    swept = {key for points in SWEEPS.values() for change in points.values() for key in change}
    return {field.name: field.default for field in fields(IdealConfig) if field.name in swept}


DEFAULTS = _defaults()


def draw_sweep(name: str, setup: str, points: Mapping[str, Mapping[str, Mapping[str, float]]]) -> "Figure":
    """Image and pixel AUROC of each point, side by side: their ranges differ."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), dpi=120, layout="constrained")
    figure.suptitle(f"{name}, {setup}, held-out source categories", x=0.01, ha="left", fontweight="bold")
    for axes, (key, title) in zip(figure.subplots(1, 2), PLOTTED.items(), strict=True):
        labels, values = list(points), [point[setup][key] for point in points.values()]
        axes.plot(labels, values, marker="o")
        for place, value in enumerate(values):
            axes.annotate(f"{value:.1f}", (place, value), textcoords="offset points", xytext=(0, 6), ha="center")
        middle, half = (min(values) + max(values)) / 2, 0.65 * max(max(values) - min(values), LEAST_RANGE)
        axes.set(title=f"{title}, %", ylim=(middle - half, middle + half))
        axes.margins(x=0.15)
        axes.grid(alpha=0.3)
    return figure


def _public(arguments: HeadTrainingOptions) -> dict[str, Any]:
    """The arguments as they are stored: folders by name only, since their location is private."""
    given = asdict(arguments)
    for key in ("source", "output_dir", "backbone", "cache"):
        given[key] = None if given[key] is None else Path(given[key]).name
    return given


def main(words: Sequence[str] | None = None) -> int:
    """The command line of this module: the options of a training run, and which sweeps to run."""
    parser = argparse.ArgumentParser(prog="modeling_ideal.evaluation.sweeps", description=__doc__.split("\n")[0])
    add_options(parser, HeadTrainingOptions)
    parser.add_argument("--sweeps", nargs="+", default=list(SWEEPS), metavar="NAME", help=f"default: {list(SWEEPS)}")
    parsed = parser.parse_args(words)
    names = vars(parsed).pop("sweeps")
    try:
        arguments = read_options(HeadTrainingOptions, parsed)
        run_sweeps(arguments, names, arguments.output)
    except (ValueError, OSError) as error:
        print(f"sweeps: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
