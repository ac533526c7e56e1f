"""`ideal build`, `ideal push` and `ideal export`: publish and export models."""

import argparse
import importlib
import sys
import sysconfig
from pathlib import Path
from typing import Any

from .. import model_folder
from .arguments import add_stage, examples, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the commands to the parser of `ideal`."""
    _add_build(commands)
    _add_push(commands)
    _add_export(commands)


def _add_build(commands: argparse._SubParsersAction) -> None:
    build = commands.add_parser(
        "build",
        help="build the folder of a Hub repository from a model",
        description="Writes source files, configuration, processor, weights, the model card with measured results, "
        "and the endpoint handler. The folder is then loaded in a new process without this package, and kept only if "
        "its scores agree with those of the source to 1e-5.",
        **examples("ideal build --model trained/model --results results/mpdd/results.json --out repository"),
    )
    build.add_argument(
        "--model", type=model_folder, required=True, metavar="FOLDER", help="an IDEAL model with its processor"
    )
    build.add_argument("--out", required=True, metavar="DIR", help="output folder")
    build.add_argument(
        "--dtype",
        default="float32",
        choices=["float16", "float32"],
        help="precision of the weights in the file; they load as float32 either way (default: float32)",
    )
    build.add_argument("--onnx", action="store_true", help="also export the backbone, as backbone.onnx")
    build.add_argument(
        "--card", metavar="FILE.md", help="the model card (default: model_card.md of the source repository)"
    )
    build.add_argument("--results", nargs="+", default=[], metavar="RESULTS.json", help="made by `ideal evaluate`")
    build.add_argument("--cost", metavar="COST.json", help="output of `ideal cost --json`")
    build.add_argument("--overwrite", action="store_true", help="replace an earlier build in DIR")
    build.set_defaults(run=lambda arguments: say(_hub_module("build").run(arguments)), extra="export")


def _add_push(commands: argparse._SubParsersAction) -> None:
    push = commands.add_parser(
        "push",
        help="publish a folder made by `ideal build` on the Hub",
        description="Refuses a git tree with uncommitted changes, a folder that was built from another version or has "
        "changed since, a card with invalid metadata, and a folder that does not load or score as the source does. "
        "The same command resumes an interrupted push.",
        **examples(
            """
ideal push --folder repository --repo org/name --dry-run
ideal push --folder repository --repo org/name --commit --tag v0.1.0
            """
        ),
    )
    push.add_argument("--folder", required=True, metavar="DIR", help="made by `ideal build`")
    push.add_argument("--repo", required=True, metavar="ORG/NAME", help="created if it does not exist")
    way = push.add_mutually_exclusive_group()
    way.add_argument("--pull-request", dest="commit", action="store_false", help="open a pull request (default)")
    way.add_argument("--commit", action="store_true", help="publish immediately")
    push.add_argument("--tag", metavar="VERSION", help="with --commit: tag the commit, for example v0.1.0")
    push.add_argument("--private", action="store_true", help="if the repository is new, make it private")
    push.add_argument("--dry-run", action="store_true", help="check everything and print what would be done")
    push.set_defaults(commit=False, run=lambda arguments: say(_hub_module("push").run(arguments)))


def _add_export(commands: argparse._SubParsersAction) -> None:
    export = commands.add_parser(
        "export",
        help="write the backbone of a model as an ONNX file",
        description="The file takes batches of any number of images of the model's size. The rest of the model "
        "stays in torch: `model.backbone = OnnxBackbone(FILE)`, from modeling_ideal.onnx_backbone. `ideal evaluate "
        "--onnx FILE` measures the loss in accuracy with int8. Needs pip install 'modeling-ideal[export]'.",
        **examples("ideal export --model ideal-tiny --int8 --out backbone.onnx"),
    )
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=model_folder, metavar="FOLDER", help="an IDEAL model: a folder or a Hub name")
    source.add_argument("--backbone", metavar="FOLDER", help="a pre-trained backbone")
    add_stage(export)
    export.add_argument("--out", required=True, metavar="FILE.onnx", help="the file to write")
    export.add_argument("--int8", action="store_true", help="8-bit weights: a quarter of the size, less accurate")
    export.set_defaults(run=_export, extra="export")


def _export(arguments: argparse.Namespace) -> int:
    from ..export.onnx import export

    return say(export(arguments))


def _hub_module(name: str) -> Any:
    """Import a module of hub/, which is next to this package in a clone, or in the data folder if installed."""
    places = (Path(__file__).resolve().parents[2], Path(sysconfig.get_path("data"), "share", "modeling_ideal"))
    for root in places:
        if (root / "hub" / f"{name}.py").is_file():
            sys.path.insert(0, str(root))
            return importlib.import_module(f"hub.{name}")
    raise ValueError(f"`ideal {name}` needs the folder hub/ of the source repository, which is not installed here")
