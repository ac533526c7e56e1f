"""Folders of pictures as records, episodes without leaks, features encoded once. Never shipped to the Hub."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import embed_images, load_records

__all__ = ["embed_images", "load_records"]


def __getattr__(name: str) -> Any:
    """Records need `datasets`, which takes seconds to import; whoever lists a folder or writes a file does not."""
    if name in __all__:
        from . import records

        return getattr(records, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
