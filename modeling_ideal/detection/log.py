"""An append-only file of results, one JSON line a picture: what was judged survives a crash at any moment."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ResultsLog:
    """Appends to a file of JSON lines; a line is on the disk when `append` returns.

    Args:
        path: the file, which must exist; a last line that was cut off is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_torn_line(path)
        self._stream = open(path, "ab")  # noqa: SIM115 - closed by `close`

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line. In ASCII, whatever a name is made of; the line break comes last, and makes it count."""
        self._stream.write(json.dumps(entry).encode("ascii") + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read all complete lines of a file; a line that is no result raises ValueError."""
    entries = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: expected a result as JSON, got {line[:80]!r}") from error
        if not isinstance(entry, dict) or "image" not in entry:
            raise ValueError(f"{path}, line {number}: expected a result with an image, got {line[:80]!r}")
        entries.append(entry)
    return entries


def _drop_torn_line(path: Path) -> None:
    with open(path, "r+b") as stream:
        content = stream.read()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            stream.truncate(complete)
            os.fsync(stream.fileno())
