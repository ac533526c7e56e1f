"""Tensors at addresses that the processor likes, so that the same numbers give the same results to the last digit.

A file that is mapped into memory puts its tensors anywhere (safetensors: 40 bytes past a multiple of 64). The matrix
library of some processors then takes another path than for the same tensor in fresh memory, and rounds differently.
"""

import torch
from torch import Tensor, nn

ALIGNMENT = 64  # bytes: what torch gives to fresh tensors


def aligned(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy of it where it lies unaligned in the memory of a CPU."""
    return tensor.clone() if tensor.device.type == "cpu" and tensor.data_ptr() % ALIGNMENT else tensor


@torch.no_grad()
def align_weights(module: nn.Module) -> None:
    """Bring the weights of a module, as they were read from a file, to aligned addresses."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = aligned(tensor.data)
