"""Checkpoints of a run: one file each, whole or not there; the last few are kept."""

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...writing.files import remove_abandoned, write_atomically


@dataclass
class Progress:
    """How far a run has come, and what it has seen on the way."""

    step: int = 0  # optimiser steps done
    seconds: float = 0.0  # spent on them, over all starts
    losses: list[dict[str, float]] = field(default_factory=list)  # of each step, with its parts
    validations: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Checkpoints:
    """The checkpoints in a folder.

    Args:
        folder: may not be there yet.
        keep: how many of the last ones stay.
        source: digest of what is trained on; a checkpoint of other pictures is refused.
    """

    folder: Path
    keep: int
    source: str

    def save(self, progress: Progress, head: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        """Write a checkpoint, then delete the oldest ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stream = io.BytesIO()
        torch.save({"progress": asdict(progress), "head": head, "optimizer": optimizer, "source": self.source}, stream)
        write_atomically(self.folder / f"step_{progress.step:08}.pt", stream.getvalue())
        for file in self._files()[: -self.keep]:
            file.unlink()

    def load(self, device: torch.device) -> tuple[Progress, dict[str, Tensor], dict[str, Any]] | None:
        """Progress, head and optimiser state of the last checkpoint; None where there is none."""
        files = self._files()
        if not files:
            return None
        remove_abandoned(self.folder)
        content = torch.load(files[-1], map_location=device, weights_only=True)
        if content["source"] != self.source:
            raise ValueError(
                f"{files[-1]}: the pictures, masks or splits of the source have changed since this run began; "
                "choose another --output_dir"
            )
        return Progress(**content["progress"]), content["head"], content["optimizer"]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step_*.pt"))
