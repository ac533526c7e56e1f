"""What a training run is told, as a dataclass; the command line is made of its fields."""

import argparse
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ... import model_folder
from ...data.setups import Setup


def _required(words: str) -> Any:
    return field(metadata={"help": words, "metavar": "DIR", "required": True})


def _option(default: Any, words: str, **argparse_options: Any) -> Any:
    """A field with the words that `--help` has for it and what else argparse should know."""
    return field(default=default, metadata={"help": words, **argparse_options})


def _several(words: str, **argparse_options: Any) -> dict[str, Any]:
    """The same of a field that takes several values."""
    return {"help": words, "nargs": "+", **argparse_options}


@dataclass
class TrainingArguments:
    """All that decides a training run: the same arguments give the same weights.

    The words of each field are its documentation and its `--help`.
    """

    source: str = _required("folder of the data set to train on")
    output_dir: str = _required("folder for the model, its record and the checkpoints")
    layout: str = _option("auto", "of the source (default: recognised)")
    backbone: str | None = _option(None, "train a new head on this backbone: a folder or a Hub name", metavar="FOLDER")
    model: str | None = _option(
        None,
        "fine-tune this IDEAL model: a folder, a Hub name, or ideal-tiny",
        metavar="FOLDER",
        type=model_folder,
    )
    stage: str | None = _option(None, "of the backbone, for example stage9, or stage6+stage9 (default: its last)")
    no_norm: bool = _option(False, "without the backbone's final layer norm", action="store_true")
    config: list[str] = field(
        default_factory=list,
        metadata=_several("fields of IdealConfig, for example loss_form=two_channel", metavar="KEY=VALUE"),
    )
    categories: list[str] = field(
        default_factory=list, metadata=_several("train on these alone (default: all that are not held out)")
    )
    held_out: list[str] = field(
        default_factory=list, metadata=_several("categories of the source to validate on, and never to train on")
    )
    setups: list[str] = field(
        default_factory=lambda: ["N1A1"],
        metadata=_several("each episode draws one of them (default: N1A1)", metavar="NxAy"),
    )
    epochs: int = _option(20, "default: 20", type=int)
    episodes_per_epoch: int = _option(500, "default: 500", type=int)
    batch_size: int = _option(16, "episodes an optimiser step, over all processes (default: 16)", type=int)
    gradient_accumulation: int = _option(1, "parts that a process takes its share of a batch in", type=int)
    learning_rate: float = _option(1e-3, "highest (default: 1e-3)", type=float)
    max_grad_norm: float | None = _option(None, "clip the gradient to this length (default: not)", type=float)
    mixed_precision: str | None = _option(
        None,
        "default: what `accelerate` is told; the head itself always computes in float32",
        choices=["no", "fp16", "bf16"],
    )
    seed: int = _option(0, "of weights, episodes and dropout (default: 0)", type=int)
    validation_every: int = _option(5, "epochs between validations; the last one is always there", type=int)
    validation_seeds: list[int] = field(
        default_factory=lambda: [0], metadata=_several("a reference set a held-out category for each", type=int)
    )
    cache: str | None = _option(None, "feature cache (default: OUTPUT_DIR/features)", metavar="DIR")
    checkpoint_steps: int = _option(0, "checkpoints within an epoch, besides that at its end (0: none)", type=int)
    keep_checkpoints: int = _option(2, "how many of the last ones stay (default: 2)", type=int)
    trackers: list[str] = field(
        default_factory=list,
        metadata=_several("of Accelerate, for example tensorboard; they write to OUTPUT_DIR/logs"),
    )

    def __post_init__(self) -> None:
        if (self.backbone is None) == (self.model is None):
            raise ValueError("expected either --backbone, for a new head, or --model, to fine-tune one")
        if self.model is not None and (self.stage is not None or self.no_norm):
            raise ValueError("--stage and --no_norm choose from a --backbone; a --model has its own, got both")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: expected a number > 0, got {value}")
        for setup in self.setups:
            if Setup.parse(setup).num_abnormal == 0:
                raise ValueError(f"setups: expected abnormal references, without which nothing trains, got {setup!r}")
        both = sorted({*self.categories} & {*self.held_out})
        if both:
            raise ValueError(f"expected categories to train on or held out, got both for {both}")
        self.config_values()

    def config_values(self) -> dict[str, Any]:
        """The pairs of `config`; a value that is not JSON is a text."""
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
        """Optimiser steps; the last one of an epoch may have fewer episodes."""
        return -(-self.episodes_per_epoch // self.batch_size)

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Where arguments that were saved differ from these, as far as the result depends on them."""
        ours = asdict(self)
        return [
            f"{name}: {other.get(name)!r} there, {ours[name]!r} now"
            for name in ours
            if name not in _WITHOUT_EFFECT and ours[name] != other.get(name)
        ]


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
_WITHOUT_EFFECT = {"output_dir", "cache", "checkpoint_steps", "keep_checkpoints", "trackers"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An option for each field; words are joined by _ or -."""
    for each in fields(TrainingArguments):
        spellings = dict.fromkeys((f"--{each.name}", f"--{each.name.replace('_', '-')}"))
        # What the user does not give stays away, so that each default is written once, in the dataclass.
        parser.add_argument(*spellings, dest=each.name, default=argparse.SUPPRESS, **each.metadata)


def read_arguments(parsed: argparse.Namespace) -> TrainingArguments:
    """The dataclass of what a parser with `add_arguments` has read."""
    names = {each.name for each in fields(TrainingArguments)}
    return TrainingArguments(**{name: value for name, value in vars(parsed).items() if name in names})
