"""Data sets: folders of images as records, episodes free of leaks, cached features. Not shipped to the Hub."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import embed_images, load_records

__all__ = ["embed_images", "load_records"]


def __getattr__(name: str) -> Any:
    """Import the records on first use: they need `datasets`, which takes seconds to import."""
    if name in __all__:
        from . import records

        return getattr(records, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
