"""Arguments shared by several commands."""

import argparse

from .. import model_folder


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
    """Print the output of a command and return the exit code for success."""
    if text:
        print(text)
    return 0
