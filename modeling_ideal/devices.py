"""The device to compute on, and what some devices lack."""

import os

import torch
from torch import Tensor

WITHOUT_LINEAR_ALGEBRA = ("mps",)  # types of devices without float64 and without eigenvectors: Apple GPUs


def for_linear_algebra(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy on the CPU if its device lacks float64 and eigenvectors."""
    return tensor.cpu() if tensor.device.type in WITHOUT_LINEAR_ALGEBRA else tensor


def best_device() -> torch.device:
    """The accelerator of this machine (CUDA, Apple, Intel, ...), or the CPU if torch finds none.

    Of several, processes that a launcher has started on one machine take one each.
    """
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None:
        return torch.device("cpu")
    rank = os.environ.get("LOCAL_RANK")
    return found if rank is None else torch.device(found.type, int(rank) % torch.accelerator.device_count())


def choose_device(name: str | None) -> torch.device:
    """The device of this name, such as `"cpu"` or `"cuda:1"`; the best one without a name."""
    if name is None:
        return best_device()
    known = list(dict.fromkeys(["cpu", best_device().type]))
    try:
        device = torch.device(name)
        usable = device.type in known
        if usable:
            torch.empty(0, device=device)  # fails if there is no device of this number
    except (RuntimeError, AssertionError):
        usable = False
    if not usable:
        raise ValueError(f"--device: expected one of {known} on this machine, got {name!r}")
    return device
