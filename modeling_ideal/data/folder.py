"""The contents of a data folder: its listing, the entries read from it, and the problems found on the way."""

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .images import Box, is_image_file, is_unreadable_image

NORMAL = "good"
"""The anomaly type of every normal image, whatever name the data set uses."""

_IGNORED = ("thumbs.db", "desktop.ini", "__macosx")


@dataclass(frozen=True)
class Entry:
    """A record before its image is decoded. Paths are relative to the root and use forward slashes."""

    file: str
    category: str
    anomaly_type: str
    split: str
    masks: tuple[str, ...] = ()
    box: Box | None = None
    """The part of the image file that the record covers; None for the whole image."""

    @property
    def label(self) -> int:
        """0 for normal, 1 for anomalous."""
        return int(self.anomaly_type != NORMAL)

    @property
    def path(self) -> str:
        """The unique name of the record: its file, with the region of a tile as a media fragment."""
        if self.box is None:
            return self.file
        left, upper, right, lower = self.box
        return f"{self.file}#xywh={left},{upper},{right - left},{lower - upper}"


@dataclass(frozen=True)
class Problem:
    """Something the user should know about the folder.

    `load_records` raises for an "error", logs a "warning" as such, and logs a "note", which needs no action, as
    information.
    """

    severity: Literal["error", "warning", "note"]
    kind: str
    path: str
    message: str


@dataclass(frozen=True)
class Listing:
    """Every file and folder below a root, as sorted relative paths; hidden and system files are left out."""

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
        """Find a file by its relative path; without an exact match, letter case is ignored."""
        path = Path(path.replace("\\", "/")).as_posix()
        return path if path in self._names else self._by_lower_case.get(path.lower())


@dataclass(frozen=True)
class Layout:
    """The way a data set is stored in a folder."""

    expects: str
    """The files and folders a user should see, for messages."""
    recognises: Callable[[Listing], bool]
    """Whether a folder has this layout."""
    read: Callable[[Listing, str | None], tuple[list[Entry], list[Problem]]]
    """Entries and problems of a listing; takes the split that validation images join, or None to leave them out."""


@dataclass(frozen=True)
class Scan:
    """A folder read according to a layout."""

    root: Path
    layout: str
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]

    def fingerprint(self) -> str:
        """A hash that changes whenever an entry, or a file it refers to, changes."""
        digest = hashlib.blake2b(digest_size=16)
        for file in dict.fromkeys(file for entry in self.entries for file in (entry.file, *entry.masks)):
            digest.update(f"{file} {file_state(self.root / file)}".encode())
        for entry in self.entries:
            digest.update(repr(entry).encode())
        return digest.hexdigest()


def file_state(path: str | Path) -> tuple[int, int, int]:
    """Size and times of a file, which change whenever the file does; the content is not read."""
    state = os.stat(path)
    # The change time too: an editor or a copy may restore the size and the modification time.
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


def check_source(root: str | Path, name: str = "") -> Path:
    """The folder of a data set; ValueError if there is none, with the `name` of the option that gave it."""
    folder = Path(root).expanduser()
    if not folder.is_dir():
        place = f"{name}: " if name else ""
        raise ValueError(f"{place}expected a folder of images, got {str(folder)!r}, which is not a folder")
    return folder


def list_folder(root: str | Path) -> Listing:
    """List a folder; ValueError if it does not exist."""
    root = check_source(root)
    found = sorted(_walk(str(root)))
    return Listing(
        root,
        files=tuple(path for path, is_folder in found if not is_folder),
        folders=tuple(path for path, is_folder in found if is_folder),
    )


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _IGNORED


def _walk(folder: str, prefix: str = "", above: frozenset[str] = frozenset()) -> Iterator[tuple[str, bool]]:
    """Yield (relative path, whether it is a folder) for everything below a folder."""
    real = os.path.realpath(folder)
    if real in above:  # following a link back to a parent would never end
        return
    with os.scandir(folder) as children:
        for child in children:
            if _ignored(child.name):
                continue
            yield prefix + child.name, child.is_dir()
            if child.is_dir():
                yield from _walk(child.path, f"{prefix}{child.name}/", above | {real})


def unused_images(listing: Listing, used: set[str]) -> Iterator[Problem]:
    """Yield a warning for every image file that the layout has no place for."""
    for file in listing.files:
        if is_image_file(file) and file not in used:
            yield Problem("warning", "left out", file, f"{file} has no place in this layout")


def unreadable_images(listing: Listing) -> Iterator[Problem]:
    """Yield a warning for every image file that Pillow cannot open here, wherever it is."""
    for file in listing.files:
        if is_unreadable_image(file):
            extension = os.path.splitext(file)[1].lower()
            message = f"{file} is left out: Pillow opens no {extension} files here; convert it to PNG"
            yield Problem("warning", "left out", file, message)


def query_images(listing: Listing, used: set[str]) -> Iterator[Problem]:
    """Yield one note for all unlabelled images of the user's own folder: they are there to be inspected."""
    files = [problem.path for problem in unused_images(listing, used)]
    if files:
        message = f"{len(files)} images have no label and give no records ({files[0]}, ...)"
        yield Problem("note", "queries", listing.name, message)


def mask_without_image(file: str) -> Problem:
    """The warning for a mask that belongs to no image, usually because the names differ."""
    return Problem("warning", "mask without image", file, f"{file} matches no image")
