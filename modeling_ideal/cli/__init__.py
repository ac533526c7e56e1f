"""The command line `ideal`. Each module declares the arguments of a group of commands; the work is done elsewhere.

Heavy imports happen only when a command runs, so that `ideal --help` is fast.
"""

import argparse
import sys
from collections.abc import Sequence

from .. import register
from ..version import __version__
from . import data, demo, detect, evaluate, hub, train

GROUPS = (demo, detect, data, train, evaluate, hub)  # in the order of `ideal --help`


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of `ideal`.

    Each command sets `run`, a function from the parsed arguments to the exit code; `extra`, the name of the optional
    dependencies it needs, if any; and `without_model=True` if transformers need not know IDEAL.
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
    """Run one command and return its exit code; bad input or a missing package gives one line and exit code 2."""
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
