"""Arguments shared by several commands."""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from .. import model_folder

ALL_NORMAL, ANOMALIES, NOT_JUDGED, WRONG_USE, INTERRUPTED = 0, 1, 2, 3, 130
NOBODY_LISTENS = 141  # as a shell has it for a command whose reader left
EXIT_CODES = """exit codes:
  0    every picture is normal
  1    some picture is anomalous
  2    some picture could not be judged; the others were, and may be anomalous
  3    wrong use, or nothing could be done: one sentence says why
  130  stopped by Ctrl-C; what was judged before is kept"""


def examples(text: str, exit_codes: str = "") -> dict[str, Any]:
    """The settings of a parser whose help ends with examples, one a line."""
    lines = "\n".join(f"  {line}" for line in text.strip().splitlines())
    epilog = "\n\n".join(part for part in (f"examples:\n{lines}", exit_codes) if part)
    return {"epilog": epilog, "formatter_class": _Formatter}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the epilog, but not those of the description."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def exit_code(counts: Mapping[str, int]) -> int:
    """The exit code of judged pictures, from their numbers by kind."""
    if counts["error"]:
        return NOT_JUDGED
    return ANOMALIES if counts["anomalous"] else ALL_NORMAL


def add_model(command: argparse.ArgumentParser) -> None:
    """Add `--model`; the default is ideal-tiny."""
    command.add_argument(
        "--model",
        type=model_folder,
        metavar="FOLDER",
        help="a trained IDEAL model: a folder, a Hub name or ideal-tiny (the default)",
    )


def add_device(command: argparse.ArgumentParser) -> None:
    """Add `--device`; the default is the best there is."""
    command.add_argument(
        "--device", metavar="NAME", help="where to compute, such as cpu, cuda:1 or mps (default: the best there is)"
    )


def add_stage(command: argparse.ArgumentParser) -> None:
    """Add `--stage` and `--no-norm`, which choose the features of a `--backbone`."""
    command.add_argument(
        "--stage", help="stage of the backbone, for example stage9, or stage6+stage9 (default: the last one)"
    )
    command.add_argument("--no-norm", action="store_true", help="skip the backbone's final layer norm")


def add_layout(command: argparse.ArgumentParser, what: str) -> None:
    """Add `--layout`, of the folder that `what` names."""
    command.add_argument(
        "--layout",
        default="auto",
        help=f"layout of {what}, such as mvtec, visa or folder; an unknown name prints all (default: recognised "
        "automatically)",
    )


def say(text: str) -> int:
    """Print the output of a command and return the exit code for success; nobody may be listening any more."""
    if text:
        try:
            print(text, flush=True)
        except BrokenPipeError:
            stop_talking()
    return 0


def stop_talking() -> None:
    """Give up standard output, whose reader has closed it, so that Python does not complain in the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
