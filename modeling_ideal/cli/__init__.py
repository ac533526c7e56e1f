"""The command line `ideal`. A module for each group of commands declares arguments; the work is done elsewhere.

Nothing here imports more than argparse before a command runs, so `ideal --help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence

from .. import register
from ..version import __version__
from . import data, demo, detect, evaluate, hub, train

GROUPS = (demo, detect, data, train, evaluate, hub)  # in the order of `ideal --help`


def build_parser() -> argparse.ArgumentParser:
    """The parser of `ideal`.

    Each command sets `run`, a function from the parsed arguments to the exit code; `extra`, the optional dependencies
    it needs; and `without_model=True` if it needs neither torch nor transformers.
    """
    parser = argparse.ArgumentParser(
        prog="ideal", description="Few-shot anomaly detection from normal and abnormal reference photographs."
    )
    parser.add_argument("--version", action="version", version=f"modeling-ideal {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for bad input or a missing package, explained in one line."""
    parsed = build_parser().parse_args(arguments)
    try:
        if not getattr(parsed, "without_model", False):
            register()
        return parsed.run(parsed)
    except ModuleNotFoundError as error:
        extra = getattr(parsed, "extra", None)
        if extra is None or (error.name or "").startswith("modeling_ideal"):
            raise
        print(f"ideal: {error.name} is not installed: pip install 'modeling-ideal[{extra}]'", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"ideal: {error}", file=sys.stderr)
        return 2
