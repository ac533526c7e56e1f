"""Training states on disk: what `torch.save` writes, in one step, and what loads without running code."""

import io
from pathlib import Path
from typing import Any

import torch

from ..writing.files import write_atomically


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values to a file that is whole or not there."""
    stream = io.BytesIO()
    torch.save(state, stream)
    write_atomically(path, stream.getvalue())


def read_state(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `write_state` wrote, with its tensors on `device`."""
    return torch.load(path, map_location=device, weights_only=True)
