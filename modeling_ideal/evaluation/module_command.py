"""Measurements that are run as modules: `python -m modeling_ideal.evaluation.NAME ...`."""

import argparse
import sys
from collections.abc import Callable, Sequence

from .. import model_folder


def add_model_and_target(parser: argparse.ArgumentParser) -> None:
    """Add `--model`, `--target`, `--layout`, `--device` and `--debug`."""
    parser.add_argument(
        "--model",
        type=model_folder,
        required=True,
        metavar="FOLDER",
        help="a trained IDEAL model: a folder, a Hub name or ideal-tiny",
    )
    parser.add_argument("--target", required=True, metavar="DIR", help="folder of a data set")
    parser.add_argument("--layout", default="auto", help="layout of the target (default: detected)")
    parser.add_argument("--device", metavar="NAME", help="where to compute (default: the best there is)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def run_module(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], str], words: Sequence[str] | None
) -> int:
    """Run a command, print its report and return the exit code: 3 for bad input, explained in one line."""
    arguments = parser.parse_args(words)
    try:
        print(run(arguments))
    except (ValueError, OSError) as error:
        if arguments.debug:
            raise
        print(f"{parser.prog.rpartition('.')[2]}: {error}", file=sys.stderr)
        return 3
    return 0
