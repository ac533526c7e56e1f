"""`ideal evaluate` and `ideal tables`: from the arguments of the command line to results and their tables."""

import argparse
import shlex
from pathlib import Path

from transformers import AutoConfig

from ..image_processing_ideal import IdealImageProcessor
from ..modeling_ideal import IdealModel
from ..training.head.starting_point import model_on_backbone
from .methods.context import METHODS
from .protocol.evaluation import Evaluation
from .protocol.reference_set_scores import IDEAL
from .report.markdown_report import SETTINGS, metrics_table, tables, write_tables
from .report.results_files import by_target, read_results


def evaluate(arguments: argparse.Namespace) -> str:
    """Run the evaluation; returns its means as Markdown tables, in the first of several processes."""
    from accelerate import PartialState

    model, processor = _load(arguments)
    default = [IDEAL] if arguments.model else [name for name in METHODS if name != "rotated_normal_matching"]
    methods = arguments.methods or default
    if methods == ["all"]:
        methods = [IDEAL, *METHODS] if arguments.model else list(METHODS)
    others = {name: IdealModel.from_pretrained(folder) for name, folder in map(_named, arguments.compare)}
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
        methods=[*methods, *others],
        others=others,
        references=Path(arguments.references) if arguments.references else None,
        smoothing=arguments.smoothing,
        command=_command(arguments, methods),
        pictures=arguments.pictures,
    ).run()
    if not PartialState().is_main_process:
        return ""
    [target] = by_target([results])
    means = [
        f"{setting.capitalize()}\n\n{metrics_table(target, setting)}" for setting in SETTINGS if target.setups(setting)
    ]
    return "\n\n".join([*means, f"More in {out / 'tables.md'}"])


def _named(comparison: str) -> tuple[str, str]:
    """Name and folder of a `--compare NAME=FOLDER`."""
    name, separator, folder = comparison.partition("=")
    if not (name and separator and folder):
        raise ValueError(f"--compare: expected NAME=FOLDER, got {comparison!r}")
    return name, folder


def make_tables(arguments: argparse.Namespace) -> str:
    """The tables of existing results; returns them, or an empty text where they went to a file."""
    results = [read_results(path) for path in arguments.results]
    if arguments.out is None:
        return tables(results)
    write_tables(arguments.out, results)
    return ""


def _load(arguments: argparse.Namespace) -> tuple[IdealModel, IdealImageProcessor]:
    if arguments.model:
        model = IdealModel.from_pretrained(arguments.model)
        processor = IdealImageProcessor.from_pretrained(arguments.model)
    else:
        patch = AutoConfig.from_pretrained(arguments.backbone).patch_size
        model = model_on_backbone(arguments.backbone, arguments.stage, arguments.no_norm)
        processor = IdealImageProcessor(patch_size=patch)
    if arguments.onnx:
        from ..onnx_backbone import OnnxBackbone

        model.backbone = OnnxBackbone(arguments.onnx)
    return model, processor


def _command(arguments: argparse.Namespace, methods: list[str]) -> str:
    """How to repeat it; folders by their names, since where they lie is nobody else's business."""
    words = ["ideal", "evaluate"]
    for name in ("model", "backbone", "onnx", "target", "references"):
        if value := getattr(arguments, name):
            words += [f"--{name}", Path(value).name]
    if arguments.compare:
        words += ["--compare", *(f"{name}={Path(folder).name}" for name, folder in map(_named, arguments.compare))]
    if arguments.stage:
        words += ["--stage", arguments.stage]
    if arguments.no_norm:
        words.append("--no-norm")
    words += ["--layout", arguments.layout, "--setups", *arguments.setups, "--seeds", *map(str, arguments.seeds)]
    words += ["--settings", *arguments.settings, "--methods", *methods, "--smoothing", f"{arguments.smoothing:g}"]
    return shlex.join(words)
