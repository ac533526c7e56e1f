"""The command line `ideal`: every command reads its arguments here and does its work elsewhere."""

import argparse
from collections.abc import Sequence

from .version import __version__


def build_parser() -> argparse.ArgumentParser:
    """The parser of `ideal`; each command sets `run`, a function of the parsed arguments."""
    parser = argparse.ArgumentParser(
        prog="ideal", description="Few-shot anomaly detection from normal and abnormal reference photographs."
    )
    parser.add_argument("--version", action="version", version=f"modeling-ideal {__version__}")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code of the process."""
    build_parser().parse_args(arguments)
    return 0
