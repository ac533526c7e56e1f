"""The methods by name; each adds itself with the decorator `method`."""

from collections.abc import Callable

from torch import Tensor

from .context import Query

Method = Callable[[Query], Tensor]
"""A query among its references to patch scores (N,), higher = more anomalous.

The image score is the mean of the highest patch scores for all methods, so they differ in nothing else.
"""

METHODS: dict[str, Method] = {}
"""Every method, sorted by name."""

IN_POSES: set[str] = set()
"""Names of methods that match references in other poses, which takes too long to be done unless it is asked for."""


def method(*, in_poses: bool = False) -> Callable[[Method], Method]:
    """Add a function to `METHODS` under its own name.

    Args:
        in_poses: it matches references in other poses; left out of the methods that run by default.
    """

    def add(function: Method) -> Method:
        name = function.__name__
        if name in METHODS:
            raise ValueError(f"expected a new name for a method, got {name!r}, which {METHODS[name].__module__} has")
        METHODS[name] = function
        if in_poses:
            IN_POSES.add(name)
        return function

    return add
