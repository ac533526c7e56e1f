"""What a folder holds, and what was found in it: the listing, the entries and the problems."""

import functools
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .images import Box, is_image_file

NORMAL = "good"
"""The anomaly type of a normal image, whatever the data set calls it."""

_IGNORED = ("thumbs.db", "desktop.ini", "__macosx")


@dataclass(frozen=True)
class Entry:
    """One record before anything is decoded. Paths are relative to the root, with forward slashes."""

    file: str
    category: str
    anomaly_type: str
    split: str
    masks: tuple[str, ...] = ()
    box: Box | None = None
    """The part of the file that the record shows; None for all of it."""

    @property
    def label(self) -> int:
        """0 for normal, 1 for anomalous."""
        return int(self.anomaly_type != NORMAL)

    @property
    def path(self) -> str:
        """The unique name of the record: its file, and for a tile the region as a media fragment."""
        if self.box is None:
            return self.file
        left, upper, right, lower = self.box
        return f"{self.file}#xywh={left},{upper},{right - left},{lower - upper}"


@dataclass(frozen=True)
class Problem:
    """Something a user should know about the folder.

    An "error" makes `load_records` refuse, a "warning" is logged by it, a "note" tells of a choice that is
    in order as it is.
    """

    severity: Literal["error", "warning", "note"]
    kind: str
    path: str
    message: str


@dataclass(frozen=True)
class Listing:
    """Every file and folder under a root, relative to it and sorted; hidden and system files aside."""

    root: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the root folder itself."""
        return self.root.resolve().name

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.files)

    @functools.cached_property
    def _by_lower_case(self) -> dict[str, str]:
        return {file.lower(): file for file in self.files}

    def find(self, path: str) -> str | None:
        """The listed file of that relative path, else one that differs from it in letter case alone."""
        path = Path(path.replace("\\", "/")).as_posix()
        return path if path in self._names else self._by_lower_case.get(path.lower())


@dataclass(frozen=True)
class Scan:
    """A folder read by one layout."""

    root: Path
    layout: str
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]

    def fingerprint(self) -> str:
        """Changes with every change of the entries or of a file behind them."""
        digest = hashlib.blake2b(digest_size=16)
        for file in dict.fromkeys(file for entry in self.entries for file in (entry.file, *entry.masks)):
            digest.update(f"{file} {file_state(self.root / file)}".encode())
        for entry in self.entries:
            digest.update(repr(entry).encode())
        return digest.hexdigest()


def file_state(path: str | Path) -> tuple[int, int, int]:
    """Differs after every change of a file, without reading it."""
    state = os.stat(path)
    # ctime as well: an editor or a copy may put the size and the time of modification back.
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


def list_folder(root: str | Path) -> Listing:
    """List a folder; ValueError where there is none."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise ValueError(f"expected a folder of images, got {str(root)!r}, which is not a folder")
    found = sorted(_walk(str(root)))
    return Listing(
        root,
        files=tuple(path for path, is_folder in found if not is_folder),
        folders=tuple(path for path, is_folder in found if is_folder),
    )


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _IGNORED


def _walk(folder: str, prefix: str = "", above: frozenset[str] = frozenset()) -> Iterator[tuple[str, bool]]:
    """(relative path, whether it is a folder) of everything below."""
    real = os.path.realpath(folder)
    if real in above:  # a link back to a folder above would never end
        return
    with os.scandir(folder) as children:
        for child in children:
            if _ignored(child.name):
                continue
            yield prefix + child.name, child.is_dir()
            if child.is_dir():
                yield from _walk(child.path, f"{prefix}{child.name}/", above | {real})


def unused_images(listing: Listing, used: set[str]) -> Iterator[Problem]:
    """A warning for every image file that the layout has no place for."""
    for file in listing.files:
        if is_image_file(file) and file not in used:
            yield Problem("warning", "left out", file, f"{file} has no place in this layout")


def query_images(listing: Listing, used: set[str]) -> Iterator[Problem]:
    """One note for all the images of one's own folder that have no label: they are there to be inspected."""
    files = [problem.path for problem in unused_images(listing, used)]
    if files:
        message = f"{len(files)} images, {files[0]} first, lie elsewhere and have no label: no records"
        yield Problem("note", "queries", listing.name, message)


def mask_without_image(file: str) -> Problem:
    """The warning for a mask that no image claims: mostly a name that differs."""
    return Problem("warning", "mask without image", file, f"{file} is the mask of no image here")
