"""What every trained rival is: a module that learns from episodes, scores queries, and is saved with its settings."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ...fingerprint import weights
from ...version import __version__
from ...writing.files import write_json
from ..head.objective import EpisodeTensors
from .reference_set import ReferenceFeatures

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


class Rival(nn.Module, ABC):
    """A trained method on the features of a frozen backbone.

    Args:
        channels: C of the features.
        settings: the keyword arguments that make this rival again.
    """

    name: ClassVar[str]

    def __init__(self, channels: int, settings: dict[str, Any]) -> None:
        super().__init__()
        self.channels = channels
        self.settings = settings
        self.encoder = ""  # fingerprint of the backbone and the preprocessing that it is trained for

    @abstractmethod
    def forward(self, episodes: Sequence[EpisodeTensors]) -> dict[str, Tensor]:
        """`"loss"` and its parts, means over the episodes of a batch."""

    @abstractmethod
    def encode(self, references: ReferenceFeatures) -> Any:
        """What scoring needs of the references, computed once."""

    @abstractmethod
    def score(self, query: Tensor, encoded: Any) -> Tensor:
        """Patch scores (h, w) of a query (h, w, C), higher = more anomalous."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.parameters()).device

    @property
    def fingerprint(self) -> str:
        """A hash of the settings and the weights."""
        given = [self.name, self.channels, self.settings, self.encoder]
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode())
        for name, tensor in weights(self):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the weights, then the configuration: where that is, the folder is complete."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        temporary = folder / f".{WEIGHTS}.partial"
        save_file(tensors, temporary)
        temporary.replace(folder / WEIGHTS)
        given = {"method": self.name, "channels": self.channels, "settings": self.settings, "encoder": self.encoder}
        write_json(folder / CONFIG, {**given, "version": __version__})
