"""The command line `ideal`: every command reads its arguments here and does its work elsewhere."""

import argparse
import json
import sys
from collections.abc import Sequence

from .cli_hub import add_commands as add_hub_commands
from .version import __version__


def build_parser() -> argparse.ArgumentParser:
    """The parser of `ideal`; each command sets `run`: from the parsed arguments to the exit code."""
    parser = argparse.ArgumentParser(
        prog="ideal", description="Few-shot anomaly detection from normal and abnormal reference photographs."
    )
    parser.add_argument("--version", action="version", version=f"modeling-ideal {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_data(commands)
    _add_evaluate(commands)
    _add_tables(commands)
    _add_cost(commands)
    add_hub_commands(commands)
    return parser


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
    command.add_argument("--stage", help="of the backbone, for example stage9 (default: its last)")
    command.add_argument("--no-norm", action="store_true", help="without the backbone's final layer norm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code of the process: 2 for bad input, said in one line."""
    parsed = build_parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except (ValueError, OSError) as error:
        print(f"ideal: {error}", file=sys.stderr)
        return 2
