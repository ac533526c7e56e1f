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

ON_REQUEST: set[str] = set()
"""Names of methods too slow to run unless they are asked for."""


def method(*, on_request: bool = False) -> Callable[[Method], Method]:
    """Add a function to `METHODS` under its own name.

    Args:
        on_request: leave it out of the methods that run by default.
    """

    def add(function: Method) -> Method:
        name = function.__name__
        if name in METHODS:
            raise ValueError(f"expected a new name for a method, got {name!r}, which {METHODS[name].__module__} has")
        METHODS[name] = function
        if on_request:
            ON_REQUEST.add(name)
        return function

    return add
