"""Train the head of IDEAL, the Intrinsic Deviation Encoder, on episodes of cached features.

    accelerate launch -m modeling_ideal.training.train --source DIR --layout mvtec --backbone NAME --output_dir OUT

`ideal train` takes the same options, in a single process.
"""

from collections.abc import Sequence

from accelerate import PartialState

from .head.options import HeadTrainingOptions
from .head.report import summary
from .head.run import train_head
from .options import run_with_options


def run(options: HeadTrainingOptions) -> None:
    """Train, and print what was done."""
    record = train_head(options)
    if PartialState().is_main_process:
        print(summary(options, record))


def main(words: Sequence[str] | None = None) -> int:
    """The command line of this module."""
    return run_with_options(
        run,
        HeadTrainingOptions,
        "modeling_ideal.training.train",
        "Train the head of IDEAL on a data set, or fine-tune a trained model on your own pictures. The same command "
        "resumes a run that was stopped.",
        words,
    )


if __name__ == "__main__":
    raise SystemExit(main())
