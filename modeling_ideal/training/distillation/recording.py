"""What the modules of a backbone's layer see and give, recorded for some tokens of many pictures."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

PICTURES_AT_ONCE = 8
TOKENS_PER_PICTURE = 192  # neighbours say nearly the same


class Recording:
    """Inputs and outputs (tokens, features) of the linear maps and norms of a layer, by the names of the modules."""

    def __init__(self, kept: Tensor) -> None:
        self._kept = kept.split(PICTURES_AT_ONCE)
        self._parts: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def inputs(self, name: str) -> Tensor:
        """What a module saw."""
        return torch.cat([inputs for inputs, _ in self._parts[name]])

    def outputs(self, name: str) -> Tensor:
        """What it gave."""
        return torch.cat([outputs for _, outputs in self._parts[name]])

    def watch(self, name: str, module: nn.Module) -> RemovableHandle:
        """Record a module from now on, part by part of the pictures."""

        def keep(_module: nn.Module, inputs: tuple, output: Tensor) -> None:
            parts = self._parts.setdefault(name, [])
            here = self._kept[len(parts)]
            parts.append((at(inputs[0], here), at(output, here)))

        return module.register_forward_hook(keep)


@contextmanager
def recording(layer: nn.Module, kept: Tensor) -> Iterator[Recording]:
    """Record a layer that is given all pictures once, by `in_parts`."""
    recorded = Recording(kept)
    hooks = [
        recorded.watch(name.rpartition(".")[2], module)
        for name, module in layer.named_modules()
        if isinstance(module, (nn.Linear, nn.LayerNorm))
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def in_parts(module: Callable[[Tensor], Tensor], pictures: Tensor) -> Tensor:
    """Apply a module to a few pictures (n, ...) at a time."""
    return torch.cat([module(part) for part in pictures.split(PICTURES_AT_ONCE)])


def some_tokens(stream: Tensor) -> Tensor:
    """(n, kept): indices of some tokens of each picture of a stream (n, 1 + hw, c), drawn at random."""
    number, tokens, _ = stream.shape
    order = torch.rand(number, tokens, generator=torch.Generator().manual_seed(0)).argsort(1)
    return order[:, :TOKENS_PER_PICTURE].to(stream.device)


def at(stream: Tensor, kept: Tensor) -> Tensor:
    """(n x kept, c): the kept tokens of a stream (n, 1 + hw, c)."""
    return stream.take_along_dim(kept[..., None], 1).flatten(0, 1)
