"""`ideal detect` in several processes, on one machine or many: each judges a share, and the first gathers the results.

    OUT.shares/1-of-2.jsonl    what a process has judged: a line as soon as a picture is judged
    OUT.shares/1-of-2.done     it has judged its share
    OUT.shares/*.parquet       what an actor of Ray has judged
    OUT.shares/overlays/       the overlays

The processes speak through this folder alone, which all must see. The same command goes on after a crash, in as many
processes as one likes: what is in a log or a shard, of whichever process, is not judged again.
"""

import hashlib
import io
import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ..data.folder import file_state
from ..version import __version__
from ..writing.files import write_atomically
from ..writing.places import list_name
from .files import OVERLAYS
from .log import ResultsLog, read_log

LIST = list_name("detect")
SECONDS_BETWEEN_LOOKS = 0.2
_NAME = re.compile(r"\d+-of-\d+\.jsonl")


class Place(NamedTuple):
    """Which of how many processes this is, as `accelerate launch` and `torchrun` say it."""

    rank: int
    processes: int

    @classmethod
    def of_this_process(cls) -> "Place":
        """That of this process; the first of one without a launcher."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


class Shares:
    """The folder in which processes keep what they have judged until it is gathered.

    Args:
        out: the output folder of the command; the folder is beside it.
        images: all pictures.
        overlays: the names of their overlays, without a folder.
        settings: all that verdicts depend on besides the pictures; results of others are not taken for these.
    """

    def __init__(self, out: Path, images: Sequence[Path], overlays: Sequence[str], settings: Sequence[Any]) -> None:
        self.folder = out.with_name(f"{out.name}.shares")
        self.images = {str(image): image for image in images}
        self.overlays = dict(zip(self.images, overlays, strict=True))
        states = [(name, _state(image)) for name, image in self.images.items()]
        everything = json.dumps([__version__, states, list(settings)])
        self.key = hashlib.blake2b(everything.encode(), digest_size=16).hexdigest()

    def missing(self, place: Place) -> list[Path]:
        """The pictures of a process's share that no process has judged yet."""
        known = self.judged()
        share = list(self.images.items())[place.rank :: place.processes]
        return [image for name, image in share if name not in known]

    def judged(self) -> dict[str, dict[str, Any]]:
        """What all processes have judged so far, by name."""
        entries = {}
        for path in self._logs():
            _, *found = read_log(path)
            entries.update({entry["image"]: entry for entry in found})
        for path in self._shards():
            entries.update({entry["image"]: entry for entry in read_shard(path)})
        return entries

    def prepare(self) -> None:
        """Make the folder."""
        (self.folder / OVERLAYS).mkdir(parents=True, exist_ok=True)
        (self.folder / LIST).touch()  # so that no process takes the overlays for pictures

    def open(self, place: Place) -> "ShareLog":
        """The log of a process, to add to."""
        self.prepare()
        path = self.folder / f"{place.rank}-of-{place.processes}.jsonl"
        if path not in self._logs():
            write_atomically(path, json.dumps({"image": "", "key": self.key}).encode() + b"\n")
        return ShareLog(self, path)

    def wait(self, place: Place) -> None:
        """Until every process has judged its share."""
        marks = [self.folder / f"{rank}-of-{place.processes}.done" for rank in range(place.processes)]
        while not all(_read(mark) == self.key.encode() for mark in marks):
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def gathered(self) -> list[tuple[str, Path, dict[str, Any], str]]:
        """What was judged, in the order of the pictures, as rows of name, picture, result and overlay file."""
        judged = self.judged()
        return [(name, image, judged[name], self.overlays[name]) for name, image in self.images.items()]

    def result(self, entry: dict[str, Any], overlay: str) -> dict[str, Any]:
        """The result that an entry of a log was made from, with a single value, its median, as the anomaly map."""
        if "error" in entry:
            return entry
        rest = {name: value for name, value in entry.items() if name != "median"}
        with Image.open(self.folder / OVERLAYS / overlay) as drawn:
            return {**rest, "overlay": drawn.copy(), "anomaly_map": np.full((1, 1), entry["median"])}

    def remove(self) -> None:
        """Delete what the processes have written, and the folder if nothing else is in it."""
        for path in self._logs():
            path.with_suffix(".done").unlink(missing_ok=True)
            path.unlink()
        for path in self._shards():
            path.unlink()
        for overlay in self.overlays.values():
            (self.folder / OVERLAYS / overlay).unlink(missing_ok=True)
        with suppress(OSError):
            (self.folder / OVERLAYS).rmdir()
            (self.folder / LIST).unlink()
            self.folder.rmdir()

    def _logs(self) -> list[Path]:
        """The logs with this key: those of other pictures or settings do not count."""
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            first, separator, _ = path.read_bytes().partition(b"\n")
            if _NAME.fullmatch(path.name) and separator and json.loads(first).get("key") == self.key:
                found.append(path)
        return found

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.key}-*.parquet"))


class ShareLog:
    """Takes the results of one process; each is on the disk when `add` returns."""

    def __init__(self, shares: Shares, path: Path) -> None:
        self.shares, self.path = shares, path
        self._log = ResultsLog(path)

    def add(self, name: str, result: dict[str, Any]) -> None:
        """Write the overlay of a picture, then its line."""
        self._log.append(keep(self.shares.folder, name, result, self.shares.overlays[name]))

    def close(self, complete: bool) -> None:
        """Close the log; if the share is judged, say so."""
        self._log.close()
        if complete:
            write_atomically(self.path.with_suffix(".done"), self.shares.key.encode())


def keep(folder: Path, name: str, result: dict[str, Any], overlay: str) -> dict[str, Any]:
    """Write the overlay of an encoded result, if it has one; returns the entry that is kept of the rest."""
    entry = {"image": name, **result}
    if "error" not in entry:
        write_atomically(folder / OVERLAYS / overlay, entry.pop("overlay"))
        entry["median"] = entry.pop("anomaly_map").item()
    return entry


def write_shard(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Write entries as Parquet: a row of JSON each, since names may have bytes that are no text."""
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    table = pyarrow.table({"entry": pyarrow.array([json.dumps(entry) for entry in entries], pyarrow.string())})
    pyarrow.parquet.write_table(table, buffer)
    write_atomically(path, buffer.getvalue())


def read_shard(path: Path) -> list[dict[str, Any]]:
    """Read the entries of a shard."""
    import pyarrow.parquet

    return [json.loads(entry) for entry in pyarrow.parquet.read_table(path).column("entry").to_pylist()]


def _state(image: Path) -> list[int] | None:
    """Size and time of a picture; None if it is not there."""
    try:
        size, modified, _ = file_state(image)
    except OSError:
        return None
    return [size, modified]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
