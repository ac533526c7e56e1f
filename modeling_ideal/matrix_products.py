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

SIMILARITIES_AT_ONCE = 2**18  # of a block of attention: 1 MB for each thread
MOST_THREADS = 4  # of attention; with more, torch's own divides heads and blocks among them better


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


def fast_layers() -> AbstractContextManager:
    """A context in which linear layers and attention without gradient are computed by oneDNN where that is faster."""
    return nullcontext() if torch.compiler.is_compiling() or not onednn_is_faster() else _LayersByOneDnn()


class _LayersByOneDnn(TorchFunctionMode):
    """Replaces functions of torch in this thread, so that the modules of a backbone stay as they are."""

    def __torch_function__(
        self, func: Callable, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and _suits_onednn(*args):
            return _by_onednn(*args)
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention` of (B, heads, N, D), each head in blocks that fit into the cache of a core."""
    dense = [each.contiguous() for each in (query, key, value)]
    workers = torch.get_num_threads()
    plain = query.ndim == 4 and attn_mask is None and not (dropout_p or is_causal or enable_gqa)
    if not plain or workers > MOST_THREADS or not all(map(_suits_onednn, dense, dense)):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    rows = max(1, workers * SIMILARITIES_AT_ONCE // key.shape[2])
    shape = (query.shape[0], query.shape[2], query.shape[1], value.shape[3])
    result = dense[2].new_empty(shape).transpose(1, 2)  # in the order that the next layer takes
    for image, own in zip(result, zip(*dense, strict=True), strict=True):
        for out, queries, keys, values in zip(image, *own, strict=True):  # (N, D) each
            columns = values.T.contiguous()
            for part, some in zip(out.split(rows), (queries * scale).split(rows), strict=True):
                part.copy_(_by_onednn(_by_onednn(some, keys).softmax(-1), columns))
    return result


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
