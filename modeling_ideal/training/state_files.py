"""Training states on disk: what `torch.save` writes, in one step, and what loads without running code."""

import io
import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from ..writing.files import write_atomically


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values to a file that is whole or not there."""
    stream = io.BytesIO()
    torch.save(state, stream)
    write_atomically(path, stream.getvalue())


def read_state(path: Path, device: torch.device | str, expected: Collection[str]) -> dict[str, Any]:
    """What `write_state` wrote, with its tensors on `device`; ValueError unless it has the `expected` entries."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        first = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{path}: expected a state of training, got {type(error).__name__}: {first:.200}; delete the file to go "
            "on without it"
        ) from error
    missing = sorted(set(expected).difference(state if isinstance(state, dict) else ()))
    if missing:
        raise ValueError(f"{path}: expected a state of training of this release, got one without {missing}")
    return state
