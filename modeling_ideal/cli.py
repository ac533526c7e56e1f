"""The command line `ideal`: every command reads its arguments here and does its work elsewhere."""

import argparse
import json
import sys
from collections.abc import Sequence

from .cli_hub import add_commands as add_hub_commands
from .training.arguments import add_arguments as add_training_arguments
from .version import __version__


def build_parser() -> argparse.ArgumentParser:
    """The parser of `ideal`; each command sets `run`: from the parsed arguments to the exit code."""
    parser = argparse.ArgumentParser(
        prog="ideal", description="Few-shot anomaly detection from normal and abnormal reference photographs."
    )
    parser.add_argument("--version", action="version", version=f"modeling-ideal {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_references(commands)
    _add_detect(commands)
    _add_demo(commands)
    _add_data(commands)
    _add_train(commands)
    _add_evaluate(commands)
    _add_tables(commands)
    _add_cost(commands)
    add_hub_commands(commands)
    return parser


def _add_references(commands: argparse._SubParsersAction) -> None:
    references = commands.add_parser(
        "references",
        help="encode the reference photographs of a product, once",
        description="Good parts, defective parts or both, to one file that `ideal detect` takes; with it a threshold "
        "that the references support.",
    )
    references.add_argument("--normal", metavar="DIR", help="photographs of good parts")
    references.add_argument("--abnormal", metavar="DIR", help="photographs of defective parts")
    references.add_argument(
        "--masks", metavar="DIR", help="where the defects are: a mask NAME or NAME_mask for each of those"
    )
    references.add_argument(
        "--types", action="store_true", help="the sub-folders of --abnormal are named after types of defects"
    )
    references.add_argument(
        "--false-alarm",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="of good parts that may be called anomalous, for the threshold (default: 0.05)",
    )
    references.add_argument(
        "--tiling",
        action="store_true",
        help="for small defects on large pictures: cut them into tiles, here and in `ideal detect`; a threshold is "
        "then found from two normal pictures on, and types are not told apart",
    )
    _add_model(references)
    references.add_argument("--out", required=True, metavar="FILE.safetensors")
    references.set_defaults(run=_references)


def _references(arguments: argparse.Namespace) -> int:
    from .detection import encode_references

    print(encode_references(arguments))
    return 0


def _add_detect(commands: argparse._SubParsersAction) -> None:
    detect = commands.add_parser(
        "detect",
        help="say which parts are bad, how sure, and where",
        description="Prints a table and writes OUT/results.json and an overlay of each picture: the anomaly map on a "
        "scale that is the same for all, green at the threshold, red far above it. "
        "Exit code 0: every picture was judged; 1: some could not be read, and it says which; 2: bad arguments.",
    )
    detect.add_argument("images", nargs="+", metavar="IMAGES", help="files, folders or globs")
    detect.add_argument("--references", required=True, metavar="FILE", help="from `ideal references`")
    _add_model(detect)
    detect.add_argument("--threshold", type=float, help="0..1 (default: that of the references, else 0.5)")
    detect.add_argument("--smoothing", type=float, default=4.0, help="of anomaly maps, in pixels (default: 4)")
    detect.add_argument("--batch-size", type=int, default=4, help="pictures at a time (default: 4)")
    detect.add_argument("--num-workers", type=int, default=0, help="processes that read pictures (default: none)")
    detect.add_argument("--out", required=True, metavar="DIR")
    detect.set_defaults(run=_detect)


def _detect(arguments: argparse.Namespace) -> int:
    from .detection import detect

    table, complete = detect(arguments)
    print(table)
    return 0 if complete else 1


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model", metavar="FOLDER", help="an IDEAL model: a folder or a Hub name (default: embedded)"
    )


def _add_demo(commands: argparse._SubParsersAction) -> None:
    demo = commands.add_parser(
        "demo",
        help="see the main job done on pictures that are rendered here, with the model that comes along",
        description="Renders a few good and defective parts, takes them as references, judges new parts, and writes "
        "pictures, heat maps, results.json and index.html to a folder. Needs neither data nor the Hub.",
    )
    demo.add_argument("--out", default="ideal-demo", metavar="DIR", help="default: ideal-demo")
    demo.add_argument("--model", metavar="FOLDER", help="a trained IDEAL model (default: the embedded one)")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from .demo.command import demo

    print(demo(Path(arguments.out), arguments.model))
    return 0


def _add_data(commands: argparse._SubParsersAction) -> None:
    data = commands.add_parser("data", help="look after folders of pictures")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="count the images of a data folder and say what is wrong with it",
        description="Counts a category, split and type, and finds missing, empty or mismatching masks, "
        "unreadable files, pictures that are in train and in test, and images of an odd size. "
        "Exit code 0: nothing is wrong; 1: something is; 2: the folder cannot be checked.",
    )
    check.add_argument("folder", metavar="DIR", help="the folder of a data set, or your own")
    check.add_argument(
        "--layout",
        default="auto",
        help="mvtec, visa, btad, aitex, bmad, folder; auto (default) recognises it",
    )
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run=_check_data)


def _check_data(arguments: argparse.Namespace) -> int:
    from .data.check import check

    report = check(arguments.folder, arguments.layout)
    print(json.dumps(report.as_json(), indent=2, ensure_ascii=False) if arguments.json else report.as_text())
    return 1 if report.problems else 0


def _add_train(commands: argparse._SubParsersAction) -> None:
    train = commands.add_parser(
        "train",
        help="train a model on a source data set, or fine-tune one on your own pictures",
        description="Draws episodes from the source and trains the head on features that are encoded once. Writes "
        "OUTPUT_DIR/model, training.json and checkpoints; a run that was stopped goes on where it was when the same "
        "command is given again. Several processes: `accelerate launch -m modeling_ideal.training.train ...`.",
    )
    add_training_arguments(train)
    train.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> int:
    from .training.train import run

    return run(arguments)


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="measure a model and the baselines on a target data set by the paper's protocol",
        description="For every category, set-up and seed one fixed reference set; image and pixel metrics in percent, "
        "as results.json, with tables.md and references.json beside it. A run that was stopped goes on where it was. "
        "Under `accelerate launch -m modeling_ideal evaluate ...` several processes share the work.",
    )
    source = evaluate.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="FOLDER", help="a trained IDEAL model: a folder or a Hub name")
    source.add_argument("--backbone", metavar="FOLDER", help="a pre-trained backbone, for the training-free methods")
    _add_stage(evaluate)
    evaluate.add_argument("--onnx", metavar="FILE", help="run the backbone from this file of `ideal export`")
    evaluate.add_argument("--target", required=True, metavar="DIR", help="folder of the target data set")
    evaluate.add_argument("--layout", default="auto", help="of the target (default: recognised)")
    evaluate.add_argument("--setups", nargs="+", default=["N1A1", "N2A1", "N4A1", "N8A4"], metavar="NxAy")
    evaluate.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED")
    evaluate.add_argument("--settings", nargs="+", default=["general", "hard"], choices=["general", "hard"])
    evaluate.add_argument(
        "--methods", nargs="+", metavar="METHOD", help="ideal and baselines; `all` for every one (default: ideal)"
    )
    evaluate.add_argument(
        "--compare",
        nargs="+",
        default=[],
        metavar="NAME=FOLDER",
        help="further trained models on the same backbone, as methods of that name; ideal_without_nve is the "
        "row of the ablation table for a model trained with erase_strength 0",
    )
    evaluate.add_argument("--references", metavar="FILE", help="repeat the reference sets of an earlier run")
    evaluate.add_argument("--smoothing", type=float, default=4.0, help="of anomaly maps, in pixels (default: 4)")
    evaluate.add_argument("--cache", metavar="DIR", help="feature cache (default: OUT/features)")
    evaluate.add_argument("--pictures", action="store_true", help="montages, curves and t-SNE, into OUT/pictures")
    evaluate.add_argument("--out", required=True, metavar="DIR")
    evaluate.set_defaults(run=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    from .evaluation.command import evaluate

    table = evaluate(arguments)
    if table:
        print(table)
    return 0


def _add_tables(commands: argparse._SubParsersAction) -> None:
    tables = commands.add_parser(
        "tables",
        help="make Markdown tables of results, with the paper's figures beside them",
        description="The tables that `ideal evaluate` writes, of one or more of its results.json: General, Hard, "
        "ablation, NVE as a plug-in, all metrics, and each category. Results on the same target must share the "
        "encoder, the seeds and the smoothing.",
    )
    tables.add_argument("results", nargs="+", metavar="RESULTS.json")
    tables.add_argument("--out", metavar="FILE.md", help="write them to this file (default: print them)")
    tables.set_defaults(run=_tables)


def _tables(arguments: argparse.Namespace) -> int:
    from .evaluation.command import make_tables

    text = make_tables(arguments)
    if text:
        print(text, end="")
    return 0


def _add_cost(commands: argparse._SubParsersAction) -> None:
    cost = commands.add_parser(
        "cost",
        help="measure what a model costs: parameters, FLOPs, frames a second, memory",
        description="One query at a time of the model's image size, with references encoded once and encoded again "
        "for every query: a Markdown table, with the paper's figures.",
    )
    source = cost.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", nargs="+", metavar="FOLDER", help="IDEAL models: folders or Hub names")
    source.add_argument("--backbone", metavar="FOLDER", help="a pre-trained backbone, with a new head")
    _add_stage(cost)
    cost.add_argument("--setups", nargs="+", default=["N1A1", "N8A4"], metavar="NxAy")
    cost.add_argument("--rounds", type=int, default=15, help="how often everything is timed (default: 15)")
    cost.add_argument("--json", action="store_true", help="print the figures as JSON")
    cost.set_defaults(run=_cost)


def _cost(arguments: argparse.Namespace) -> int:
    from .evaluation.cost import cost

    print(cost(arguments))
    return 0


def _add_stage(command: argparse.ArgumentParser) -> None:
    command.add_argument("--stage", help="of the backbone, for example stage9, or stage6+stage9 (default: its last)")
    command.add_argument("--no-norm", action="store_true", help="without the backbone's final layer norm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code of the process: 2 for bad input, said in one line."""
    parsed = build_parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except (ValueError, OSError) as error:
        print(f"ideal: {error}", file=sys.stderr)
        return 2
