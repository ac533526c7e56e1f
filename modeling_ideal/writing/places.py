"""Where a command writes: looked at before the work begins, and never at the cost of what others wrote there."""

import hashlib
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryFile

from .files import write_atomically

_GROWING = "growing"  # in place of a hash: a file that a command adds to as it goes


def check_file(path: Path, name: str, replaces: Callable[[Path], bool], kind: str) -> None:
    """Refuse a file that could not be written once the work is done, or that would replace one of another kind.

    Args:
        path: the file to write.
        name: the argument that gives it, for messages.
        replaces: whether an existing file may be replaced.
        kind: what such a file is, for messages.
    """
    if path.is_dir():
        raise ValueError(f"{name}: expected a file to write, got the folder {str(path)!r}")
    if not path.parent.is_dir():
        raise ValueError(f"{name}: expected a file in an existing folder, got {str(path)!r}")
    if path.exists() and not replaces(path):
        raise ValueError(f"{name}: expected a new file or {kind} to replace, got {str(path)!r}, which is another")
    _check_writable(path.parent, name)


def check_folder(path: Path, name: str) -> None:
    """Refuse a folder, given by the argument `name`, that could not be made or written to once the work is done."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ValueError(f"{name}: expected a folder, got {str(path)!r}, where {str(place)!r} is a file")
    _check_writable(place, name)


def _check_writable(folder: Path, name: str) -> None:
    """Try it with a file that has no name: permissions alone do not tell, and root has them all."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{name}: expected a folder that one may write to, got {str(folder)!r}") from error


class OutputFolder:
    """The folder that a command fills, which keeps a list of what the command wrote there, with hashes.

    The command may replace its own files, as long as nobody has changed them, and touches no others. Whoever runs it
    twice gets the second result in the place of the first.

    Args:
        path: the folder; created with the first file.
        command: name of the command, such as `"detect"`.
        names: all files that it may write, relative to the folder; a name that ends in "/" stands for all files of
            that sub-folder, if they cannot be known before.
    """

    def __init__(self, path: Path, command: str, names: Collection[str]) -> None:
        check_folder(path, "--out")
        self.path = path
        self._list = path / list_name(command)
        self._written: dict[str, str] = {}
        if path.exists() and not self._list.is_file() and any(path.iterdir()):
            raise ValueError(
                f"--out: expected a new or empty folder, or one made by `ideal {command}`, got {str(path)!r}, which "
                "holds other files"
            )
        listed = self._read_list()
        self._earlier = {name for name, hashes in listed.items() if self._is_own(name, hashes)}
        folders = tuple(name for name in names if name.endswith("/"))
        there = [file.relative_to(path).as_posix() for folder in folders for file in sorted((path / folder).glob("*"))]
        there += [name for name in names if name not in folders and os.path.lexists(path / name)]
        self._refuse(
            [name for name in there if name not in self._earlier],
            f"was not written by `ideal {command}`, or was changed since",
        )
        others = self._earlier.difference(names)
        self._refuse(
            sorted(name for name in others if not name.startswith(folders)),
            "belongs to another result and would be mixed with this",
        )

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically, and list it first: a run that is killed here still knows what is its own."""
        self._note(name, hashlib.sha256(content).hexdigest())
        write_atomically(self.path / name, content)

    def start(self, name: str) -> Path:
        """Begin an empty file that the command adds to as it goes, and list it first; returns its path."""
        self._note(name, _GROWING)
        write_atomically(self.path / name, b"")
        return self.path / name

    def finish(self) -> None:
        """Drop what this run has written no more, such as the overlay of an image that can no longer be read."""
        for name, content_hash in self._written.items():
            if content_hash == _GROWING:
                self._written[name] = _hash_of(self.path / name) or _GROWING
        for name in self._earlier.difference(self._written):
            (self.path / name).unlink(missing_ok=True)
        lines = [_line(name, content_hash) for name, content_hash in self._written.items()]
        write_atomically(self._list, "".join(lines).encode())

    def _note(self, name: str, content_hash: str) -> None:
        if not self._written:
            self.path.mkdir(parents=True, exist_ok=True)
            self._list.touch()  # before anything else: a folder without it is not the command's
        elif not self._list.is_file():  # what was written before is gone too
            raise ValueError(f"--out: expected {str(self.path)!r} to stay until the end, got it gone or emptied")
        if name not in self._written:
            (self.path / name).parent.mkdir(exist_ok=True)
        self._written[name] = content_hash
        with open(self._list, "a", encoding="ascii") as stream:
            stream.write(_line(name, content_hash))

    def _is_own(self, name: str, hashes: set[str]) -> bool:
        """Whether a listed file is there as the command wrote it."""
        content_hash = _hash_of(self.path / name)
        return content_hash is not None and (content_hash in hashes or _GROWING in hashes)

    def _refuse(self, names: Collection[str], reason: str) -> None:
        if names:
            first = next(iter(names))
            others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(
                f"--out: expected a folder of its own, got {str(self.path)!r}, where {first!r} {reason}{others}; "
                "choose another folder, or remove this one"
            )

    def _read_list(self) -> dict[str, set[str]]:
        """The hashes of every listed file: more than one if a run was stopped that was replacing it."""
        listed: dict[str, set[str]] = {}
        for line in self._list.read_text("ascii").splitlines() if self._list.is_file() else ():
            try:
                content_hash, name = json.loads(line)
            except ValueError:
                continue  # empty, or the last line of a run that was killed
            listed.setdefault(name, set()).add(content_hash)
        return listed


def list_name(command: str) -> str:
    """The name of the list of files that a command keeps in its output folder."""
    return f".written-by-ideal-{command}"


def _line(name: str, content_hash: str) -> str:
    # In ASCII, whatever the name is made of, and after a line break: the line before may have been cut off.
    return "\n" + json.dumps([content_hash, name])


def _hash_of(path: Path) -> str | None:
    """SHA-256 of a file; None if there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
