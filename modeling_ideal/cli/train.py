"""`ideal train`."""

import argparse

from ..training.head.options import HeadTrainingOptions
from ..training.options import add_options, read_options
from .arguments import examples


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    train = commands.add_parser(
        "train",
        help="train a model on a source data set, or fine-tune one on your own pictures",
        description="Trains the head of IDEAL on episodes of a data set. The backbone is frozen and encodes each "
        "picture once. Writes the model to OUTPUT_DIR/model and a record of the run to OUTPUT_DIR/training.json. The "
        "same command resumes a run that was stopped. To use several GPUs or processes, replace `ideal train` by "
        "`accelerate launch -m modeling_ideal.training.train`.",
        **examples(
            """
ideal train --backbone facebook/dinov2-small --source path/to/mvtec --layout mvtec --output_dir trained
ideal train --model ideal-tiny --source my_parts/ --output_dir tuned    # fine-tune on your own pictures
            """
        ),
    )
    add_options(train, HeadTrainingOptions)
    train.set_defaults(run=_train, extra="training")


def _train(arguments: argparse.Namespace) -> int:
    from ..training.train import run

    run(read_options(HeadTrainingOptions, arguments))
    return 0
