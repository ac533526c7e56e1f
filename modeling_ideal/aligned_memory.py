"""Aligned tensors: the same weights give exactly the same results, whether read from a file or not.

A memory-mapped file can put tensors at any address (safetensors: 40 bytes past a multiple of 64). On some processors
the matrix library then takes another code path than for the same tensor in newly allocated memory, and rounds
differently.
"""

import torch
from torch import Tensor, nn

ALIGNMENT = 64  # bytes, as torch aligns new tensors


def aligned(tensor: Tensor) -> Tensor:
    """Return the tensor itself, or an aligned copy if it is in CPU memory and not aligned."""
    return tensor.clone() if tensor.device.type == "cpu" and tensor.data_ptr() % ALIGNMENT else tensor


@torch.no_grad()
def align_weights(module: nn.Module) -> None:
    """Move the weights of a module that were read from a file to aligned addresses."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = aligned(tensor.data)
