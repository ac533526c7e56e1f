"""The options of a distillation."""

# ruff: noqa: RUF009 - `option` makes a dataclass field

from dataclasses import dataclass
from pathlib import Path

from ..options import check_at_least, check_positive, option


@dataclass
class DistillationOptions:
    """Everything that determines a student: the same options give the same weights."""

    teacher: str = option("DINOv2 backbone to learn from: a folder or a Hub name", metavar="FOLDER")
    images: list[str] = option("folders of unlabelled pictures, searched with all their subfolders", metavar="DIR")
    output_dir: str = option("folder for the student, its log and the state to resume from", metavar="DIR")
    cache: str = option("folder for the teacher's features", "~/.cache/modeling_ideal/distillation", metavar="DIR")
    stage: int | None = option(
        "layer of the teacher to imitate, at its whole width with the final layer norm (default: the last)", None
    )
    width: int | None = option(
        "channels of the student: a multiple of the size of the teacher's attention heads (default: the teacher's)",
        None,
    )
    mlp_ratio: int = option("units of the student's MLPs, times its width", 3)
    image_size: int = option("side length in pixels to which pictures are resized", 308)
    crops: int = option("number of random crops of the pictures to learn from, besides the pictures", 800)
    textures: int = option("number of rendered textures to learn from, besides the pictures", 400)
    fit_images: int = option("number of pictures, crops and textures that the initial fit uses", 600)
    held_out: float = option("fraction of the pictures kept for validation", 0.05)
    validation_images: int = option("validate on at most N of the pictures kept for it", 32)
    steps: int = option("number of optimiser steps; 0 leaves the student as the initial fit makes it", 0)
    batch_size: int = option("pictures per optimiser step, over all processes", 8)
    learning_rate: float = option("peak learning rate, reached after warm-up", 1e-4)
    warmup: float = option("fraction of the steps over which the learning rate rises", 0.1)
    save_every: int = option("validate and save every N steps", 200)
    device: str | None = option(
        "where to compute, such as cpu or cuda:1 (default: the best there is, for each process)", None, metavar="NAME"
    )
    seed: int = option("random seed of the crops, textures, validation pictures and their order", 0)

    def __post_init__(self) -> None:
        check_at_least(self, _LEAST)
        check_positive(self, "learning_rate")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out: expected a fraction between 0 and 1, got {self.held_out}")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup: expected a fraction from 0 to 1, got {self.warmup}")

    @property
    def output(self) -> Path:
        """The output folder."""
        return Path(self.output_dir).expanduser()


_LEAST = {
    "image_size": 1,
    "crops": 0,
    "textures": 0,
    "fit_images": 1,
    "validation_images": 1,
    "steps": 0,
    "batch_size": 1,
    "save_every": 1,
    "seed": 0,
}
WITHOUT_EFFECT = {"output_dir", "cache", "device", "save_every"}
"""Options that make no difference to the student: a resumed run may change them."""
