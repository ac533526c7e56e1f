"""The references file of a long run: which one it is, and whether another has taken its place."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .arrivals import signature_of

KEY = "references"  # of an entry of the log: the beginning of the file's hash


class UsedReferences:
    """The references file that a run has begun with.

    Args:
        path: the file; make this before it is loaded.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._signature = path, signature_of(path)
        self.key = _key(path.read_bytes())

    def replaced(self) -> str | None:
        """What to say if the file is not the one that the run has begun with; None if it is, or is gone."""
        try:
            signature = signature_of(self._path)
            if signature == self._signature:
                return None
            self._signature, content = signature, self._path.read_bytes()
        except OSError:
            return None
        if _key(content) == self.key:
            return None
        return (
            f"{str(self._path)!r} has changed since the start, and pictures are judged with what it was then: start "
            "again to use the new references"
        )

    def others(self, entries: Iterable[Mapping[str, Any]]) -> str | None:
        """What to say of the entries of earlier runs; None if all were judged with these references."""
        judged = [entry[KEY] for entry in entries if KEY in entry and "error" not in entry]
        count = sum(key != self.key for key in judged)
        if not count:
            return None
        return f"{count} of {len(judged)} earlier pictures were judged with other references, and keep their verdicts"


def _key(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
