"""A pretended accelerator, which refuses to mix its tensors with those of the CPU, as a real one does.

    with pretended_device() as device:
        model.to(device)

Its tensors are computed on the CPU, but say that they are on another device. So a forgotten `.to(device)` fails on any
machine. It lacks eigenvectors and float64, as Apple GPUs do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "pretended"
ATEN = torch.ops.aten
TRANSFERS = (ATEN._to_copy.default, ATEN.copy_.default)
INDEXING = (ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default)  # take indices from the CPU
MISSING = (ATEN._linalg_eigh.default, ATEN.linalg_eigh.default)

_present = False  # whether the machine has the device


def _register() -> torch.device:
    """Make the device known to torch, once a process; other tests do not see it."""
    if torch._C._get_privateuse1_backend_name() != NAME:
        if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
            pytest.skip("this torch has no backends written in Python")

        class Hook(backend_registration._DummyPrivateUse1Hook):
            def is_available(self):
                return _present

        class Module(backend_registration._DummyBackendModule):
            def is_available(self):
                return _present

            def device_count(self):
                return int(_present)

            def get_amp_supported_dtype(self):
                return [torch.float16]

        backend_registration._setup_privateuseone_for_python_backend(NAME, Module(), Hook())
    return torch.device(NAME, 0)


@contextmanager
def pretended_device() -> Iterator[torch.device]:
    """The device, which this thread has for as long as the context lasts."""
    global _present
    device = _register()
    before = torch._C._only_lift_cpu_tensors(), torch.__future__.get_overwrite_module_params_on_conversion()
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(..., device=device)` makes one on the CPU, then moves it
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a parameter of the CPU cannot become another's
    _present = True
    try:
        with _Pretence():
            yield device
    finally:
        _present = False
        torch._C._set_only_lift_cpu_tensors(before[0])
        torch.__future__.set_overwrite_module_params_on_conversion(before[1])


class RemoteTensor(torch.Tensor):
    """A tensor on the pretended device; `content` holds its values."""

    content: torch.Tensor

    @staticmethod
    def __new__(cls, content):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            content.size(),
            content.stride(),
            content.storage_offset(),
            dtype=content.dtype,
            device=torch.device(NAME, 0),
        )

    def __init__(self, content):
        self.content = content

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})

    def tolist(self):
        return self.content.tolist()  # torch refuses it to sub-classes

    def __repr__(self, **_):
        return f"RemoteTensor({self.content!r})"


class _Pretence(TorchDispatchMode):
    """Sees calls without any tensor too, such as `torch.zeros(3, device=device)`."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _run(function, args, kwargs):
    checked = (args[0], args[2:]) if function in INDEXING else (args, kwargs)
    tensors = [value for value in tree_flatten(checked)[0] if isinstance(value, torch.Tensor)]
    remote = [tensor for tensor in tensors if isinstance(tensor, RemoteTensor)]
    local = [tensor for tensor in tensors if not isinstance(tensor, RemoteTensor) and tensor.ndim]
    if remote and local and function not in TRANSFERS:
        shapes = [tuple(tensor.shape) for tensor in local]
        raise RuntimeError(f"{function}: expected all tensors on {NAME}, got some on the CPU, of shapes {shapes}")
    wanted = kwargs.get("device")
    on_device = bool(remote) if wanted is None else torch.device(wanted).type == NAME
    if function is ATEN.copy_.default:
        on_device = isinstance(args[0], RemoteTensor)
    if on_device and function in MISSING:
        raise NotImplementedError(f"{function}: {NAME} has no such operation")
    owners = {id(tensor.content): tensor for tensor in remote}
    result = function(*tree_map(_content, args), **{**tree_map(_content, kwargs), **_on_cpu(wanted)})
    return tree_map(lambda value: _remote(value, owners), result) if on_device else result


def _on_cpu(wanted):
    return {} if wanted is None else {"device": torch.device("cpu")}


def _content(value):
    return value.content if isinstance(value, RemoteTensor) else value


def _remote(value, owners):
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.float64:
        raise TypeError(f"{NAME} has no float64")
    return owners[id(value)] if id(value) in owners else RemoteTensor(value)
