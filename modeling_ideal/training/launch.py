"""Where a process of a training or an evaluation computes: on the device asked for, or on the one it was given."""

import os
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import parse_flag_from_env, patch_environment

from ..devices import choose_device


def make_accelerator(device: str | None, **settings: Any) -> Accelerator:
    """An `Accelerator` on the device of this name; without a name, on the one that Accelerate finds best."""
    if device is None:
        return Accelerator(**settings)
    chosen = choose_device(device)
    if chosen.type == "cpu":
        return Accelerator(cpu=True, **settings)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(f"--device: expected none in several processes, which have one each, got {device!r}")
    with patch_environment(ACCELERATE_TORCH_DEVICE=str(chosen)):
        return Accelerator(**settings)


def process_device(device: str | None) -> torch.device:
    """The device of this name; without a name, the one that `accelerate launch` gave to this process, or the best."""
    # On a CPU the processes find each other only with this flag; `Accelerator` reads it, `PartialState` does not.
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
    return state.device if device is None else choose_device(device)
