"""Folders of pictures as records, episodes without leaks, features encoded once. Never shipped to the Hub."""

from .records import embed_images, load_records

__all__ = ["embed_images", "load_records"]
