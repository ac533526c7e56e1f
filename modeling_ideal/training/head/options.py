"""The options of a training run."""

# ruff: noqa: RUF009 - `option` makes a dataclass field

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import model_folder
from ...data.setups import Setup
from ..options import check_at_least, check_positive, option
from ..rivals.names import LEARNING_RATES

LEARNING_RATE = 1e-3  # of IDEAL's head


@dataclass
class HeadTrainingOptions:
    """Everything that determines a training run: the same options give the same weights."""

    source: str = option("data set to train on", metavar="DIR")
    output_dir: str = option("folder for the model, training.json and the checkpoints", metavar="DIR")
    layout: str = option("layout of the source: mvtec, visa, btad, aitex, bmad, folder, or auto to detect it", "auto")
    backbone: str | None = option(
        "train a new head on this pre-trained backbone: a folder or a Hub name", None, metavar="FOLDER"
    )
    model: str | None = option(
        "fine-tune this IDEAL model instead: a folder, a Hub name, or ideal-tiny",
        None,
        metavar="FOLDER",
        type=model_folder,
    )
    method: str | None = option(
        f"train a rival of IDEAL instead, on --backbone: {', '.join(LEARNING_RATES)}; `ideal evaluate --compare` "
        "loads it",
        None,
        metavar="NAME",
    )
    stage: str | None = option(
        "stage of the backbone whose features are used, for example stage9; stage6+stage9 joins two "
        "(default: the last stage)",
        None,
    )
    no_norm: bool = option("skip the backbone's final layer norm", False)
    config: list[str] = option(
        "fields of IdealConfig to set, for example loss_form=two_channel num_neighbors=8; with --method, settings of "
        "the rival, for example denoise=true",
        [],
        metavar="KEY=VALUE",
    )
    categories: list[str] = option(
        "categories of the source to train on (default: all that are not held out)", [], metavar="NAME"
    )
    held_out: list[str] = option(
        "categories of the source to validate on; they are never trained on (default: none)", [], metavar="NAME"
    )
    setups: list[str] = option(
        "number of references in an episode, for example N1A1 for one normal and one abnormal; given several, each "
        "episode draws one",
        ["N1A1"],
        metavar="NxAy",
    )
    epochs: int = option("number of epochs", 20)
    episodes_per_epoch: int = option("number of episodes in an epoch; each scores one query", 500)
    batch_size: int = option("episodes per optimiser step, over all processes", 16)
    gradient_accumulation: int = option(
        "split each process's share of a batch into this many parts, to save memory; the result stays the same, "
        "but not with --method resad, whose boundary is that of a part",
        1,
    )
    learning_rate: float = option(
        f"peak learning rate, reached after warm-up (default: {LEARNING_RATE}; with --method, that of the rival)", None
    )
    max_grad_norm: float | None = option("clip the norm of the gradient to this value (default: no clipping)", None)
    device: str | None = option(
        "where to compute, such as cpu or cuda:1 (default: the best there is, for each process)", None, metavar="NAME"
    )
    seed: int = option("random seed of the new head's weights, the episodes and dropout", 0)
    validation_every: int = option("epochs between validations; the last epoch is always validated", 5)
    validation_seeds: list[int] = option("validate with one random reference set per seed, and average", [0])
    cache: str | None = option(
        "folder for the backbone's features, which several runs may share (default: OUTPUT_DIR/features)",
        None,
        metavar="DIR",
    )
    checkpoint_steps: int = option("also save a checkpoint every N steps; 0 saves at the end of each epoch only", 0)
    keep_checkpoints: int = option("number of most recent checkpoints to keep", 2)
    trackers: list[str] = option(
        "experiment trackers of Accelerate, for example tensorboard; logs go to OUTPUT_DIR/logs (default: none)",
        [],
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        if (self.backbone is None) == (self.model is None):
            raise ValueError("expected either --backbone, to train a new head, or --model, to fine-tune one")
        if self.model is not None and (self.stage is not None or self.no_norm):
            raise ValueError("expected --stage and --no_norm with --backbone alone, got them with --model")
        self._check_method()
        check_at_least(self, _LEAST)
        check_positive(self, "learning_rate", "max_grad_norm")
        for setup in self.setups:
            if Setup.parse(setup).num_abnormal == 0:
                raise ValueError(f"setups: expected at least one abnormal reference to learn from, got {setup!r}")
        both = sorted({*self.categories} & {*self.held_out})
        if both:
            raise ValueError(f"expected each category in --categories or --held_out, got {both} in both")
        self.config_values()

    def _check_method(self) -> None:
        """Check what belongs to a rival, and take its learning rate if none is given."""
        if self.method is not None:
            if self.method not in LEARNING_RATES:
                raise ValueError(f"method: expected one of {list(LEARNING_RATES)}, got {self.method!r}")
            if self.model is not None:
                raise ValueError("expected --backbone with --method, which is trained from scratch, got --model")
        if self.learning_rate is None:
            self.learning_rate = LEARNING_RATE if self.method is None else LEARNING_RATES[self.method]

    def config_values(self) -> dict[str, Any]:
        """The pairs of `config`, their values read as JSON where possible and as text otherwise."""
        values = {}
        for pair in self.config:
            name, equals, text = pair.partition("=")
            if not name or not equals:
                raise ValueError(f"config: expected KEY=VALUE, got {pair!r}")
            try:
                values[name] = json.loads(text)
            except json.JSONDecodeError:
                values[name] = text
        return values

    @property
    def output(self) -> Path:
        """The output folder."""
        return Path(self.output_dir).expanduser()

    @property
    def feature_cache(self) -> Path:
        """The folder of the feature cache."""
        return self.output / "features" if self.cache is None else Path(self.cache)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps per epoch; the last one may have fewer episodes."""
        return -(-self.episodes_per_epoch // self.batch_size)


_LEAST = {
    "epochs": 1,
    "episodes_per_epoch": 1,
    "batch_size": 1,
    "gradient_accumulation": 1,
    "seed": 0,
    "validation_every": 1,
    "checkpoint_steps": 0,
    "keep_checkpoints": 1,
}
WITHOUT_EFFECT = {"output_dir", "cache", "device", "checkpoint_steps", "keep_checkpoints", "trackers"}
"""Options that make no difference to the weights: a resumed run may change them."""
