"""Pictures that come into a folder: which of them are new, and complete."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.images import is_image_file
from ..image_inputs import load_image
from ..writing.places import list_name


class Signature(NamedTuple):
    """What a file system says of a file; if it is the same, so is the content."""

    size: int
    modified: int  # nanoseconds
    inode: int


class Arrival(NamedTuple):
    """A picture that is to be judged: its content as it was read, once."""

    name: str  # relative to the folder, with /
    signature: Signature
    sha256: str
    pixels: np.ndarray | None  # (H, W, 3); None if it cannot be read
    error: str | None


@dataclass
class Arrivals:
    """Looks into a folder from time to time.

    A picture is known by its name and its content: new content under an old name is a new picture, and an old picture
    that is written again, or touched, is not. A file is read when two looks have found it unchanged; one that cannot
    be decoded then may still be being written, and is given up only after a time of grace without a change.

    Args:
        folder: the folder, with its sub-folders; hidden files, and folders of results, are passed over.
        grace: seconds for which a file may be broken.
        known: the signature and hash of each picture that was judged, by its name.
        changing: names of files that the last look found new or changed.
    """

    folder: Path
    grace: float
    known: dict[str, tuple[Signature, str]] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)
    _last: dict[str, Signature] = field(default_factory=dict)
    _broken: dict[tuple[str, Signature], float] = field(default_factory=dict)

    def look(self) -> set[str] | None:
        """Look into the folder; returns the names of pictures that are to be judged or waited for, None without it."""
        listing = list_pictures(self.folder)
        if listing is None:
            return None
        self.changing = {name for name, signature in listing.items() if self._last.get(name) != signature}
        self._last = listing
        self._broken = {key: since for key, since in self._broken.items() if listing.get(key[0]) == key[1]}
        return {name for name, signature in listing.items() if not self._is_known(name, signature)}

    def complete(self, now: float) -> Iterator[Arrival]:
        """Read the new pictures that the last two looks found unchanged, oldest first; `now` in seconds."""
        settled = (name for name in self._last if name not in self.changing)
        new = [name for name in settled if not self._is_known(name, self._last[name])]
        for name in sorted(new, key=lambda name: (self._last[name].modified, name)):
            arrival = self._read(name, self._last[name], now)
            if arrival is not None:
                yield arrival

    def judged(self, arrival: Arrival) -> None:
        """Remember a picture that was judged."""
        self.known[arrival.name] = (arrival.signature, arrival.sha256)

    def _is_known(self, name: str, signature: Signature) -> bool:
        return name in self.known and self.known[name][0] == signature

    def _read(self, name: str, signature: Signature, now: float) -> Arrival | None:
        """Read a picture; None if it is not new after all, or should be looked at again later."""
        path = self.folder / name
        try:
            content = path.read_bytes()
            if signature_of(path) != signature:
                return None
        except FileNotFoundError:
            return None
        except OSError as error:  # perhaps locked by who writes it
            return self._given_up(
                Arrival(name, signature, "", None, f"{name}: expected a readable file, got {error}"), now
            )
        content_hash = hashlib.sha256(content).hexdigest()
        if name in self.known and self.known[name][1] == content_hash:
            self.known[name] = (signature, content_hash)
            return None
        try:
            return Arrival(name, signature, content_hash, load_image(content, name), None)
        except ValueError as error:
            return self._given_up(Arrival(name, signature, content_hash, None, str(error)), now)

    def _given_up(self, arrival: Arrival, now: float) -> Arrival | None:
        """A picture that cannot be read, if it has been like that for long enough; otherwise None."""
        since = self._broken.setdefault((arrival.name, arrival.signature), now)
        return arrival if now - since >= self.grace else None


def known_pictures(entries: list[dict[str, Any]]) -> dict[str, tuple[Signature, str]]:
    """What `Arrivals` must know of pictures that were judged before, from the entries of their log."""
    return {entry["image"]: (Signature(*entry["file"]), entry["sha256"]) for entry in entries}


def list_pictures(folder: Path) -> dict[str, Signature] | None:
    """The pictures of a folder and its sub-folders, by their names relative to it; None if it is not there."""
    found: dict[str, Signature] = {}
    missing: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=missing.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if any(list_name(command) in files for command in ("detect", "watch", "demo")):
            folders.clear()
            continue
        for name in files:
            path = os.path.join(place, name)
            if name.startswith(".") or not is_image_file(name):
                continue
            try:
                found[Path(os.path.relpath(path, folder)).as_posix()] = signature_of(path)
            except OSError:
                continue  # gone since
    if any(Path(error.filename) == folder for error in missing if error.filename):
        return None
    return found


def signature_of(path: str | Path) -> Signature:
    """The signature of a file; OSError if it is not there."""
    status = os.stat(path)
    return Signature(status.st_size, status.st_mtime_ns, status.st_ino)
