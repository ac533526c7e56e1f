"""Matrix products in float32 by the library that is fast on this processor; both compute in full float32.

torch leaves products in float32 to MKL. On AMD's processors with AVX-512, MKL reaches about half of the speed of
oneDNN, which torch has too, but takes by itself only when less precision is allowed. On all other processors nothing
changes. `python -m tests.benchmarks --only products` compares the two.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


@cache
def onednn_is_faster() -> bool:
    """Whether this is a processor of AMD with AVX-512, as far as this version of torch can tell."""
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if capabilities is None or not torch.backends.mkldnn.is_available():
        return False
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and "AMD" in capabilities().get("cpu_name", "")


def inner_products(rows: Tensor, columns: Tensor) -> Tensor:
    """Inner products (P, Q) of each of the rows (P, C) with each of the columns (Q, C)."""
    return _by_onednn(rows, columns) if _suits_onednn(rows, columns) else rows @ columns.T


def fast_linear_layers() -> AbstractContextManager:
    """A context in which linear layers without gradient are computed by oneDNN where that is faster."""
    return nullcontext() if torch.compiler.is_compiling() or not onednn_is_faster() else _LinearByOneDnn()


class _LinearByOneDnn(TorchFunctionMode):
    """Replaces `F.linear` in this thread, so that the modules of a backbone stay as they are."""

    def __torch_function__(
        self, func: Callable, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and _suits_onednn(*args):
            return _by_onednn(*args)
        return func(*args, **(kwargs or {}))


def _suits_onednn(vectors: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether the product can be left to oneDNN: in float32 on the CPU, in dense memory, without a gradient."""
    given = [vectors, weight] if bias is None else [vectors, weight, bias]
    return (
        onednn_is_faster()
        and all(each.dtype == torch.float32 and each.device.type == "cpu" and each.is_contiguous() for each in given)
        and not (torch.is_grad_enabled() and any(each.requires_grad for each in given))
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and vectors.numel() > 0 < weight.numel()
    )


def _by_onednn(vectors: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Vectors (..., C) times the transpose of weight (Q, C), plus bias (Q,): (..., Q)."""
    return torch.ops.mkldnn._linear_pointwise(vectors, weight, bias, "none", [], "")
