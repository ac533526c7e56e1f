"""`ideal train`."""

import argparse

from ..training.head.options import add_arguments


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    train = commands.add_parser(
        "train",
        help="train a model on a source data set, or fine-tune one on your own pictures",
        description="Draws episodes from the source and trains the head on features that are encoded once. Writes "
        "OUTPUT_DIR/model, training.json and checkpoints; the same command resumes a run that was stopped. "
        "For several processes: `accelerate launch -m modeling_ideal.training.train ...`.",
    )
    add_arguments(train)
    train.set_defaults(run=_train, extra="training")


def _train(arguments: argparse.Namespace) -> int:
    from ..training.train import run

    return run(arguments)
