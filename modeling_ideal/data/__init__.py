"""Folders of pictures as records, episodes without leaks, features encoded once. Never shipped to the Hub."""

from .records import load_records

__all__ = ["load_records"]
