"""The commands `ideal build`, `ideal push` and `ideal export`."""

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add them to the parser of `ideal`."""
    _add_build(commands)
    _add_push(commands)
    _add_export(commands)


def _add_build(commands: argparse._SubParsersAction) -> None:
    build = commands.add_parser(
        "build",
        help="make the folder of a Hub repository from a model",
        description="The source files as they are, config, processor, weights, model card with the measured figures, "
        "endpoint handler. The folder is loaded in a fresh process without this package, and is there only if it "
        "scores as the source does, bit for bit. Works in a clone of the repository.",
    )
    build.add_argument("--model", required=True, metavar="FOLDER", help="an IDEAL model with its processor")
    build.add_argument("--out", required=True, metavar="DIR", help="the folder to make")
    build.add_argument(
        "--dtype",
        default="float32",
        choices=["float16", "float32"],
        help="of the weights in the file; they load as float32 either way (default: float32)",
    )
    build.add_argument("--onnx", action="store_true", help="export the backbone as backbone.onnx too")
    build.add_argument("--card", metavar="FILE.md", help="the model card (default: model_card.md of the clone)")
    build.add_argument("--results", nargs="+", default=[], metavar="RESULTS.json", help="of `ideal evaluate`")
    build.add_argument("--cost", metavar="COST.json", help="what `ideal cost --json` printed")
    build.add_argument("--overwrite", action="store_true", help="replace what is in DIR")
    build.set_defaults(run=lambda arguments: _say(_from_clone("build").run(arguments)))


def _add_push(commands: argparse._SubParsersAction) -> None:
    push = commands.add_parser(
        "push",
        help="publish a folder of `ideal build` on the Hub",
        description="Refuses a git tree with changes, a folder that was not built from the commit that is checked "
        "out or was changed since, invalid metadata of the card, and a folder that does not load or score as it "
        "should. A push that broke off goes on when it is called again. Works in a clone of the repository.",
    )
    push.add_argument("--folder", required=True, metavar="DIR", help="from `ideal build`")
    push.add_argument("--repo", required=True, metavar="ORG/NAME", help="made if it is not there")
    way = push.add_mutually_exclusive_group()
    way.add_argument("--pull-request", dest="commit", action="store_false", help="publish for review (default)")
    way.add_argument("--commit", action="store_true", help="publish at once")
    push.add_argument("--tag", metavar="VERSION", help="with --commit: tag it, for example v0.1.0")
    push.add_argument("--private", action="store_true", help="a new repository is private")
    push.add_argument("--dry-run", action="store_true", help="check everything and say what would be done")
    push.set_defaults(commit=False, run=lambda arguments: _say(_from_clone("push").run(arguments)))


def _add_export(commands: argparse._SubParsersAction) -> None:
    export = commands.add_parser(
        "export",
        help="write the backbone of a model as an ONNX file",
        description="For any batch of images of the model's size. What comes after the backbone stays in torch: "
        "`model.backbone = OnnxBackbone(FILE)` with modeling_ideal.onnx_backbone. What int8 costs is measured by "
        "`ideal evaluate --onnx FILE`. Needs pip install 'modeling-ideal[export]'.",
    )
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="FOLDER", help="an IDEAL model: a folder or a Hub name")
    source.add_argument("--backbone", metavar="FOLDER", help="a pre-trained backbone")
    export.add_argument("--stage", help="of the backbone, for example stage9, or stage6+stage9 (default: its last)")
    export.add_argument("--no-norm", action="store_true", help="without the backbone's final layer norm")
    export.add_argument("--out", required=True, metavar="FILE.onnx")
    export.add_argument("--int8", action="store_true", help="weights in 8 bits: a quarter of the size, less exact")
    export.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> int:
    from .onnx_export import export

    return _say(export(arguments))


def _from_clone(name: str) -> ModuleType:
    """A module of hub/, which lies beside this package in the repository and is not installed with it."""
    root = Path(__file__).resolve().parents[1]
    if not (root / "hub" / f"{name}.py").is_file():
        raise ValueError(
            f"`ideal {name}` expected a clone of the repository (pip install --editable .), "
            "got an installed package, which has no folder hub/"
        )
    sys.path.insert(0, str(root))
    return importlib.import_module(f"hub.{name}")


def _say(text: str) -> int:
    print(text)
    return 0
