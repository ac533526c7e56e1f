"""The output of `ideal watch`: a folder for one watcher at a time, and its page of the latest pictures."""

import json
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .. import model_name
from ..report.page import Report, count_kinds, kind_of
from ..report.thumbnails import MOST_SHOWN, Thumbnails
from ..writing.files import json_bytes, write_atomically
from ..writing.places import check_folder, list_name
from .arrivals import signature_of
from .files import OVERLAYS
from .results import LARGEST_SHARE, LOG, PAGE, thumbnails_of

PARTIAL = ".*.partial"  # what a writer that was killed leaves
RESTORED = 60  # pictures whose thumbnails are made again after a restart


class WatchFolder:
    """What is watched, and the folder of the results, which says so.

    Args:
        path: the folder of the results: new, empty or made by watching the same folder.
        folder: the folder to watch; it may be away for a while, but not at the very first.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        check_folder(path, "--out")
        self.path, self.folder = path, folder
        self._mark = path / list_name("watch")
        if folder.is_dir() and path.is_dir() and path.samefile(folder):
            raise ValueError(f"--out: expected another folder than the watched one, got {str(path)!r} for both")
        if self._mark.is_file():
            earlier = _watched_before(self._mark)
            if earlier != self._watched():
                raise ValueError(
                    f"--out: expected a folder of its own for each watched folder, got {str(path)!r}, which holds the "
                    f"results of {earlier!r}"
                )
        elif path.is_dir() and any(not file.match(PARTIAL) for file in path.iterdir()):
            raise ValueError(
                f"--out: expected a new or empty folder, or one made by `ideal watch`, got {str(path)!r}, which holds "
                "other files"
            )
        elif not folder.is_dir():
            raise ValueError(f"FOLDER: expected a folder to watch, got {str(folder)!r}")

    def _watched(self) -> str:
        return os.path.abspath(self.folder)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder and hold it against other watchers; what a killed one left half-written is removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self._mark.exists():
            write_atomically(self._mark, json_bytes({"folder": self._watched()}))
        with open(self.path / LOG, "ab") as stream:
            _lock(stream.fileno(), self.path)
            (self.path / OVERLAYS).mkdir(exist_ok=True)
            for partial in self.path.rglob(PARTIAL):
                partial.unlink(missing_ok=True)
            yield


def _watched_before(mark: Path) -> str:
    """The folder whose results lie beside a mark."""
    try:
        return json.loads(mark.read_text())["folder"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{mark}: expected the mark of `ideal watch`, got another file; choose another --out"
        ) from error


def _lock(descriptor: int, path: Path) -> None:
    """Hold a file until it is closed, or this process ends in any way; where there are no locks, do nothing."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ValueError(f"--out: expected a folder that nobody else writes to, got {str(path)!r}") from error


class WatchPage:
    """The report on the latest pictures, and the numbers of all.

    Args:
        out: the folder of the results.
        facts: what the report says of model and references.
        earlier: the entries of runs before.
        refresh: seconds after which a browser loads the page again.
    """

    def __init__(
        self, out: WatchFolder, facts: dict[str, Any], earlier: Sequence[dict[str, Any]], refresh: float
    ) -> None:
        self.drift: str | None = None
        self.replaced: str | None = None  # said if there is a new references file
        self.others: str | None = None  # said if there are verdicts with other references
        self._out, self._facts, self._refresh = out, facts, refresh
        self._counts = count_kinds(earlier)
        self._shown: deque[tuple[dict[str, Any], Thumbnails | None]] = deque(maxlen=MOST_SHOWN)
        latest = earlier[-MOST_SHOWN:]
        for place, entry in enumerate(latest):
            self._shown.append((entry, self._restored(entry) if place >= len(latest) - RESTORED else None))
        self._cost, self._written = 0.0, -float("inf")
        self._changed = True

    def add(self, entry: dict[str, Any], pixels: np.ndarray | None, overlay: Image.Image | None) -> None:
        """Show a further picture."""
        self._counts[kind_of(entry)] += 1
        self._shown.append((entry, None if pixels is None or overlay is None else thumbnails_of(pixels, overlay)))
        self._changed = True

    def write_if_due(self, seconds: float) -> None:
        """Write the page if that is due: after so many seconds, or later if it takes long."""
        if self._changed and time.monotonic() - self._written > max(seconds, self._cost / LARGEST_SHARE):
            self.write()

    def write(self) -> None:
        """Write the page."""
        started = time.monotonic()
        write_atomically(self._out.path / PAGE, self._report().html())
        self._written = time.monotonic()
        self._cost, self._changed = self._written - started, False

    def _report(self) -> Report:
        total = sum(self._counts.values())
        facts = [
            f"Folder: {self._out.folder}; references: {self._facts['references']}; model: "
            f"{model_name(self._facts['model'])}"
        ]
        if total > len(self._shown):
            facts.append(f"The latest {len(self._shown)} of {total} pictures; all are in {LOG}")
        return Report(
            "Watch report",
            facts,
            [*filter(None, (self.drift, self.replaced, self.others)), *self._facts["warnings"]],
            [entry for entry, _ in self._shown],
            {entry["overlay"]: small for entry, small in self._shown if small is not None},
            folder=self._out.path,
            pictures=self._out.folder,
            counts=self._counts,
            refresh=self._refresh,
        )

    def _restored(self, entry: dict[str, Any]) -> Thumbnails | None:
        """The thumbnails of a picture of an earlier run, as far as its files are still there."""
        if "overlay" not in entry:
            return None
        picture = self._out.folder / entry["image"]
        try:
            same = list(signature_of(picture)) == entry["file"]
        except OSError:
            same = False
        try:
            with Image.open(self._out.path / entry["overlay"]) as overlay:
                return thumbnails_of(picture if same else None, overlay.convert("RGB"))
        except OSError:
            return None
