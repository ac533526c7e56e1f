"""The command line `ideal`: every command reads its arguments here and does its work elsewhere."""

import argparse
import json
import sys
from collections.abc import Sequence

from .version import __version__


def build_parser() -> argparse.ArgumentParser:
    """The parser of `ideal`; each command sets `run`: from the parsed arguments to the exit code."""
    parser = argparse.ArgumentParser(
        prog="ideal", description="Few-shot anomaly detection from normal and abnormal reference photographs."
    )
    parser.add_argument("--version", action="version", version=f"modeling-ideal {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_data(commands)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code of the process: 2 for bad input, said in one line."""
    parsed = build_parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except (ValueError, OSError) as error:
        print(f"ideal: {error}", file=sys.stderr)
        return 2
