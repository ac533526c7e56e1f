"""`ideal evaluate`: from the arguments of the command line to results and their tables."""

import argparse
import shlex
from pathlib import Path

from .. import model_name
from ..data.folder import check_source
from ..data.setups import SETTINGS
from ..image_processing_ideal import IdealImageProcessor
from ..modeling_ideal import IdealModel
from ..training.head.starting_point import model_on_backbone, processor_on_backbone
from ..training.launch import process_device
from ..training.rivals.registry import is_rival, load_rival
from ..writing.places import check_folder
from .methods import IN_POSES, METHODS
from .protocol.evaluation import Evaluation
from .report.metric_tables import metrics_table
from .report.target_results import group_by_target
from .results_file import IDEAL


def evaluate(arguments: argparse.Namespace) -> str:
    """Run the evaluation; returns its means as Markdown tables, or an empty text in all processes but the first."""
    from accelerate import PartialState

    out = Path(arguments.out)
    check_output(out)
    target = check_source(arguments.target, "--target")
    device = process_device(arguments.device)
    model, processor = _load(arguments)
    model.to(device)
    methods = _methods(arguments)
    compared = dict(map(_named, arguments.compare))
    rivals = {name: load_rival(folder).to(device) for name, folder in compared.items() if is_rival(folder)}
    others = {
        name: IdealModel.from_pretrained(folder).to(device) for name, folder in compared.items() if name not in rivals
    }
    results = Evaluation(
        model=model,
        processor=processor,
        target=target,
        out=out,
        cache=Path(arguments.cache) if arguments.cache else out / "features",
        layout=arguments.layout,
        setups=arguments.setups,
        seeds=arguments.seeds,
        settings=arguments.settings,
        methods=[*methods, *compared],
        others=others,
        rivals=rivals,
        references=Path(arguments.references) if arguments.references else None,
        smoothing=arguments.smoothing,
        command=_command(arguments, methods),
        pictures=arguments.pictures,
    ).run()
    if not PartialState().is_main_process:
        return ""
    [measured] = group_by_target([results])
    means = [
        f"{setting.capitalize()}\n\n{metrics_table(measured, setting)}"
        for setting in SETTINGS
        if measured.setups(setting)
    ]
    return "\n\n".join([*means, f"More in {out / 'tables.md'}"])


def check_output(out: Path) -> None:
    """Refuse, before the work, a folder that cannot be written to or that holds files of these names by others."""
    check_folder(out, "--out")
    taken = [name for name in ("results.json", "tables.md", "references.json") if (out / name).exists()]
    if taken and not (out / "measurements").is_dir():  # which every evaluation makes
        raise ValueError(f"--out: expected a new folder or that of an evaluation, got {str(out)!r} with {taken[0]}")


def _named(comparison: str) -> tuple[str, str]:
    """Name and folder of a `--compare NAME=FOLDER`."""
    name, separator, folder = comparison.partition("=")
    if not (name and separator and folder):
        raise ValueError(f"--compare: expected NAME=FOLDER, got {comparison!r}")
    return name, folder


def _methods(arguments: argparse.Namespace) -> list[str]:
    """The methods that are asked for; by default the model alone, and on a bare backbone every quick method too."""
    if arguments.methods == ["all"]:
        return [IDEAL, *METHODS]
    if arguments.methods:
        return arguments.methods
    return [IDEAL] if arguments.model else [IDEAL, *(name for name in METHODS if name not in IN_POSES)]


def _load(arguments: argparse.Namespace) -> tuple[IdealModel, IdealImageProcessor]:
    if arguments.model:
        model = IdealModel.from_pretrained(arguments.model)
        processor = IdealImageProcessor.from_pretrained(arguments.model)
    else:
        model = model_on_backbone(arguments.backbone, arguments.stage, arguments.no_norm, deviation_encoder=None)
        processor = processor_on_backbone(arguments.backbone, model)
    if arguments.onnx:
        from ..onnx_backbone import OnnxBackbone

        model.backbone = OnnxBackbone(arguments.onnx)
    return model, processor


def _command(arguments: argparse.Namespace, methods: list[str]) -> str:
    """The command that repeats this; folders by name only, since their location is private."""
    words = ["ideal", "evaluate"]
    for name in ("model", "backbone", "onnx", "target", "references"):
        if value := getattr(arguments, name):
            words += [f"--{name}", model_name(value)]
    if arguments.compare:
        words += ["--compare", *(f"{name}={Path(folder).name}" for name, folder in map(_named, arguments.compare))]
    if arguments.stage:
        words += ["--stage", arguments.stage]
    if arguments.no_norm:
        words.append("--no-norm")
    words += ["--layout", arguments.layout, "--setups", *arguments.setups, "--seeds", *map(str, arguments.seeds)]
    words += ["--settings", *arguments.settings, "--methods", *methods, "--smoothing", f"{arguments.smoothing:g}"]
    return shlex.join(words)
