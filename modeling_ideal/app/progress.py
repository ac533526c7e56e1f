"""How an action tells how far it is."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Progress(Protocol):
    """Iterates over items, and shows the text with the share that is done."""

    def __call__(self, items: Sequence[Any], text: str) -> Iterable[Any]: ...


def silent(items: Sequence[Any], text: str) -> Iterable[Any]:
    """Iterate without telling anybody."""
    return items
