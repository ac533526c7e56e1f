"""The command line `ideal`. Each module declares the arguments of a group of commands; the work is done elsewhere.

Heavy imports happen only when a command runs, so that `ideal --help` is fast.
"""

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import register
from ..version import __version__
from . import app, data, demo, detect, evaluate, explain, hub, train, watch
from .arguments import INTERRUPTED, NOBODY_LISTENS, WRONG_USE, stop_talking

GROUPS = (demo, app, detect, watch, explain, data, train, evaluate, hub)  # in the order of `ideal --help`
# Errors of torch and safetensors about memory and damaged files, by name: importing them here would take seconds.
_FROM_LIBRARIES = ("OutOfMemoryError", "SafetensorError")
# How the package begins a message: with the name of an argument, and the place in a list.
_ARGUMENT = re.compile(r"^([a-z_]+)(?:\[\d+\])?: ")
_WITHOUT_DASHES = ("image", "images", "folder")
_HUB = "huggingface.co"  # in what transformers says of a name that it looked for there


class _Parser(argparse.ArgumentParser):
    """A parser with `--debug`; commands and their actions are parsers of the same class."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Without a default, since that of a command would replace what was given before it.
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )

    def error(self, message: str) -> NoReturn:
        """Refuse wrong arguments."""
        self.print_usage(sys.stderr)
        self.exit(WRONG_USE, f"{self.prog}: error: {message}\n")


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
    """Run one command and return its exit code; an error gives one line and exit code 3, with --debug a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack letters of a file name
    try:
        return _run(build_parser().parse_args(arguments))
    except BrokenPipeError:  # the reader of the output left before the work was done
        stop_talking()
        return NOBODY_LISTENS
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            stop_talking()


def _run(parsed: argparse.Namespace) -> int:
    debug = getattr(parsed, "debug", False)
    try:
        if not getattr(parsed, "without_model", False):
            register()
        return parsed.run(parsed)
    except KeyboardInterrupt:
        if debug:
            raise
        print("ideal: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        print(f"ideal: {_message(error, parsed)}", file=sys.stderr)
        return WRONG_USE


def _message(error: Exception, parsed: argparse.Namespace) -> str:
    """What to tell the user of an error, on one line."""
    text, extra = " ".join(str(error).split()) or type(error).__name__, getattr(parsed, "extra", None)
    if isinstance(error, FileNotFoundError) and error.filename and error.strerror:
        return f"expected a file or folder, got {os.fsdecode(error.filename)!r}, which does not exist"
    if isinstance(error, OSError) and _HUB in text and (missing := _not_found(parsed)):
        return missing
    if isinstance(error, ModuleNotFoundError) and extra and not (error.name or "").startswith("modeling_ideal"):
        return f"{error.name} is not installed: pip install 'modeling-ideal[{extra}]'"
    if isinstance(error, ValueError):
        return _ARGUMENT.sub(lambda found: _as_given(found, parsed), text)
    if isinstance(error, (OSError, MemoryError)) or type(error).__name__ in _FROM_LIBRARIES:
        return text
    return f"a fault of this program, {type(error).__name__}: {text}; --debug shows where"


def _as_given(found: re.Match, parsed: argparse.Namespace) -> str:
    """The name of an argument as a person gives it here; that of a file in the list follows it."""
    if found[1] not in vars(parsed):
        return found[0]
    return f"{found[1].upper()}: " if found[1] in _WITHOUT_DASHES else f"--{found[1].replace('_', '-')}: "


def _not_found(parsed: argparse.Namespace) -> str:
    """Which model or backbone is neither a folder nor on the Hub; empty if all are folders."""
    for option, kinds in (("model", "ideal-tiny, a folder or a Hub name"), ("backbone", "a folder or a Hub name")):
        given = getattr(parsed, option, None) or []
        for name in [given] if isinstance(given, str) else given:
            if not os.path.isdir(name):
                return (
                    f"--{option}: expected {kinds}, got {name!r}, which is no folder here and was not found on the Hub"
                )
    return ""
