"""Distil a small, fast backbone from a large one.

    accelerate launch -m modeling_ideal.training.distill --teacher facebook/dinov2-small --images PICTURES \\
        --output_dir STUDENT

The student's folder is a backbone like any other: `IdealModel.from_backbone(STUDENT)`.
"""

from collections.abc import Sequence

from .distillation.loop import Distillation
from .distillation.options import DistillationOptions
from .options import run_with_options


def run(options: DistillationOptions) -> None:
    """Distil, and print how well the student agrees with its teacher."""
    distillation = Distillation(options)
    agreement = distillation.run()
    distillation.accelerator.print(
        f"{options.output}: cosine similarity to the teacher {agreement['cosine']:.4f}, with centred features "
        f"{agreement['centred_cosine']:.4f}, on {len(distillation.validation)} held-out pictures"
    )


def main(words: Sequence[str] | None = None) -> int:
    """The command line of this module."""
    return run_with_options(
        run,
        DistillationOptions,
        "modeling_ideal.training.distill",
        "Distil a small, fast backbone from a large one, using unlabelled pictures. The same command resumes a run "
        "that was stopped.",
        words,
    )


if __name__ == "__main__":
    raise SystemExit(main())
