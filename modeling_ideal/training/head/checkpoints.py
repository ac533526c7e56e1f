"""Checkpoints of a run: one file each, of which the most recent are kept."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...writing.files import remove_abandoned
from ..state_files import read_state, write_state


@dataclass
class Progress:
    """How far a run has come, with its losses and validations so far."""

    step: int = 0  # optimiser steps done
    seconds: float = 0.0  # spent on them, across restarts
    losses: list[dict[str, float]] = field(default_factory=list)  # of each step: the loss and its parts
    validations: list[dict[str, Any]] = field(default_factory=list)

    def epoch_losses(self, steps_per_epoch: int) -> list[dict[str, float]]:
        """The mean losses of each finished epoch."""
        epochs = [
            self.losses[end - steps_per_epoch : end] for end in range(steps_per_epoch, self.step + 1, steps_per_epoch)
        ]
        return [{name: float(np.mean([step[name] for step in epoch])) for name in epoch[0]} for epoch in epochs]


@dataclass
class Checkpoints:
    """The checkpoints in a folder.

    Args:
        folder: created when the first one is saved.
        keep: number of most recent checkpoints to keep.
        source_digest: of the data trained on; a checkpoint of other data is refused.
    """

    folder: Path
    keep: int
    source_digest: str

    def save(self, progress: Progress, head: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        """Write a checkpoint, then delete the oldest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {"progress": asdict(progress), "head": head, "optimizer": optimizer, "source": self.source_digest}
        write_state(self.folder / f"step_{progress.step:08}.pt", state)
        for file in self._files()[: -self.keep]:
            file.unlink()

    def load(self, device: torch.device) -> tuple[Progress, dict[str, Tensor], dict[str, Any]] | None:
        """Progress, head and optimiser state of the last checkpoint, or None if there is none."""
        files = self._files()
        if not files:
            return None
        remove_abandoned(self.folder)
        state = read_state(files[-1], device, ("progress", "head", "optimizer", "source"))
        if state["source"] != self.source_digest:
            raise ValueError(
                f"{files[-1]}: the pictures, masks or splits of the source have changed since this run began; "
                "choose another --output_dir"
            )
        return Progress(**state["progress"]), state["head"], state["optimizer"]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step_*.pt"))
