"""`ideal evaluate`: from the arguments of the command line to an evaluation, and its figures as a table."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from ..image_processing_ideal import IdealImageProcessor
from ..modeling_ideal import IdealModel
from .methods import METHODS
from .protocol import Evaluation
from .units import IDEAL

COLUMNS = {
    "image_auroc": "image AUROC",
    "image_ap": "AP",
    "image_f1_max": "F1-max",
    "pixel_auroc": "pixel AUROC",
    "pixel_pro": "PRO",
    "pixel_f1_max": "F1-max",
}


def evaluate(arguments: argparse.Namespace) -> str:
    """Run the evaluation; returns its means as a Markdown table, in the first of several processes."""
    from accelerate import PartialState

    model, processor = _load(arguments)
    default = [IDEAL] if arguments.model else [name for name in METHODS if name != "rotated_normal_matching"]
    methods = arguments.methods or default
    if methods == ["all"]:
        methods = [IDEAL, *METHODS] if arguments.model else list(METHODS)
    if IDEAL in methods and not arguments.model:
        raise ValueError("the method 'ideal' needs a trained --model, got a --backbone alone")
    out = Path(arguments.out)
    results = Evaluation(
        model=model,
        processor=processor,
        target=Path(arguments.target),
        out=out,
        cache=Path(arguments.cache) if arguments.cache else out / "features",
        layout=arguments.layout,
        setups=arguments.setups,
        seeds=arguments.seeds,
        settings=arguments.settings,
        methods=methods,
        references=Path(arguments.references) if arguments.references else None,
        smoothing=arguments.smoothing,
        command=_command(arguments, methods),
        pictures=arguments.pictures,
    ).run()
    return means_table(results) if PartialState().is_main_process else ""


def means_table(results: dict[str, Any]) -> str:
    """Mean over categories, with the spread over seeds, of every method, set-up and setting."""
    lines = [
        f"| set-up | setting | method | {' | '.join(COLUMNS.values())} |",
        f"| --- | --- | --- |{' ---: |' * len(COLUMNS)}",
    ]
    for method, of_method in results["methods"].items():
        for setup, settings in of_method["setups"].items():
            for setting, figures in settings.items():
                cells = [_cell(figures["mean"][name], figures["spread"][name]) for name in COLUMNS]
                lines.append(f"| {setup} | {setting} | {method} | {' | '.join(cells)} |")
    return "\n".join([*lines[:2], *sorted(lines[2:])])


def _cell(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"


def load_backbone(folder: str, stage: str | None, no_norm: bool) -> IdealModel:
    """A new head on a stage of a pre-trained backbone, by default its last, normed or not."""
    options: dict[str, Any] = {"apply_layernorm": False} if no_norm else {}
    if stage:
        options["out_features"] = [stage]
    return IdealModel.from_backbone(folder, **options)


def _load(arguments: argparse.Namespace) -> tuple[IdealModel, IdealImageProcessor]:
    if arguments.model:
        model = IdealModel.from_pretrained(arguments.model)
        return model, IdealImageProcessor.from_pretrained(arguments.model)
    patch = AutoConfig.from_pretrained(arguments.backbone).patch_size
    model = load_backbone(arguments.backbone, arguments.stage, arguments.no_norm)
    return model, IdealImageProcessor(patch_size=patch)


def _command(arguments: argparse.Namespace, methods: list[str]) -> str:
    """How to repeat it; folders by their names, since where they lie is nobody else's business."""
    words = ["ideal", "evaluate"]
    for name in ("model", "backbone", "target", "references"):
        if value := getattr(arguments, name):
            words += [f"--{name}", Path(value).name]
    if arguments.stage:
        words += ["--stage", arguments.stage]
    if arguments.no_norm:
        words.append("--no-norm")
    words += ["--layout", arguments.layout, "--setups", *arguments.setups, "--seeds", *map(str, arguments.seeds)]
    words += ["--settings", *arguments.settings, "--methods", *methods, "--smoothing", f"{arguments.smoothing:g}"]
    return shlex.join(words)
