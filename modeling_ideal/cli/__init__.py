"""The command line `ideal`. Each module declares the arguments of a group of commands; the work is done elsewhere.

Heavy imports happen only when a command runs, so that `ideal --help` is fast.
"""

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any

from .. import register
from ..version import __version__
from . import data, demo, detect, evaluate, explain, hub, train

GROUPS = (demo, detect, explain, data, train, evaluate, hub)  # in the order of `ideal --help`
INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it
# Errors of torch and safetensors about memory and damaged files, by name: importing them here would take seconds.
_FROM_LIBRARIES = ("OutOfMemoryError", "SafetensorError")


class _Parser(argparse.ArgumentParser):
    """A parser with `--debug`; commands and their actions are parsers of the same class."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Without a default, since that of a command would replace what was given before it.
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of `ideal`.

    Each command sets `run`, a function from the parsed arguments to the exit code; `extra`, the name of the optional
    dependencies it needs, if any; and `without_model=True` if transformers need not know IDEAL.
    """
    parser = _Parser(
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack letters of a file name
    try:
        if not getattr(parsed, "without_model", False):
            register()
        return parsed.run(parsed)
    except KeyboardInterrupt:
        if getattr(parsed, "debug", False):
            raise
        print("ideal: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        message = _message(error, getattr(parsed, "extra", None))
        if message is None or getattr(parsed, "debug", False):
            raise
        print(f"ideal: {message}", file=sys.stderr)
        return 2


def _message(error: Exception, extra: str | None) -> str | None:
    """What to tell the user of an error, on one line; None for an error that is a fault of this program."""
    if isinstance(error, ModuleNotFoundError):
        if extra is None or (error.name or "").startswith("modeling_ideal"):
            return None
        return f"{error.name} is not installed: pip install 'modeling-ideal[{extra}]'"
    if isinstance(error, (ValueError, OSError, MemoryError)) or type(error).__name__ in _FROM_LIBRARIES:
        return " ".join(str(error).split()) or type(error).__name__
    return None
