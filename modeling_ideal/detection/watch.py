"""The implementation of `ideal watch`: judges pictures as they come, each once, whatever happens in between."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..image_inputs import ImageInput
from ..report.page import count_kinds, kind_of, printable
from ..writing.files import write_atomically
from ..writing.png import rgb_png
from .arrivals import Arrival, Arrivals, known_pictures
from .detect import check_arguments
from .drift import DriftWatch
from .files import LONGEST_STEM, OVERLAYS
from .judging import load_judge
from .log import ResultsLog, read_log
from .results import LOG
from .used_references import KEY, UsedReferences
from .watch_folder import WatchFolder, WatchPage

Judging = Callable[[Sequence[ImageInput], Sequence[str]], Iterator[dict[str, Any]]]
Say = Callable[[str], object]


def watch(arguments: argparse.Namespace, say: Say) -> dict[str, int]:
    """Judge the pictures of a folder as they come, until Ctrl-C, or with `--once` those that are there.

    Args:
        arguments: of the command line.
        say: prints a line of output.

    Returns:
        The number of pictures of each kind that this run has judged.
    """
    check_arguments(arguments)
    for name in ("interval", "grace", "report_every"):
        if not 0 < getattr(arguments, name) < float("inf"):
            raise ValueError(f"--{name.replace('_', '-')}: expected seconds > 0, got {getattr(arguments, name):g}")
    if arguments.batch_size < 1:
        raise ValueError(f"--batch-size: expected a number >= 1, got {arguments.batch_size}")
    used = UsedReferences(Path(arguments.references))
    out = WatchFolder(Path(arguments.out), Path(arguments.folder).expanduser())
    judge, facts, drift = load_judge(arguments)
    with out.claimed():
        watcher = Watcher(out, judge, drift, facts, arguments, say, used)
        try:
            watcher.run(arguments.once)
        finally:
            watcher.close()
    return count_kinds(watcher.judged)


class Watcher:
    """Watches a folder.

    Args:
        out: what is watched, and where results go.
        judge: gives a result for each of some pictures with names.
        drift: notices when pictures differ from the references all over.
        facts: what the report says of model and references.
        options: `interval`, `grace`, `report_every`, `batch_size`, `json`: as on the command line.
        say: prints a line of output.
        used: the references file.
    """

    def __init__(
        self,
        out: WatchFolder,
        judge: Judging,
        drift: DriftWatch,
        facts: dict[str, Any],
        options: argparse.Namespace,
        say: Say,
        used: UsedReferences,
    ) -> None:
        self._out, self._judge, self._drift, self._options, self._say = out, judge, drift, options, say
        self._used = used
        self._log = ResultsLog(out.path / LOG)
        earlier = read_log(out.path / LOG)
        self._arrivals = Arrivals(out.folder, options.grace, known_pictures(earlier))
        self._page = WatchPage(out, facts, earlier, refresh=options.report_every)
        self._page.others = self._warned(used.others(earlier))
        self._page.write()
        self._there = True
        self.judged: list[dict[str, Any]] = []

    def close(self) -> None:
        """Write the report for the last time."""
        self._page.write()
        self._log.close()

    def run(self, once: bool) -> None:
        """Look, judge, wait; with `once` until all that was there at first is judged, or keeps changing."""
        awaited: set[str] | None = None
        progress, looks = time.monotonic(), 0
        while True:
            started = time.monotonic()
            pending = self._look()
            if self._page.replaced is None:
                self._page.replaced = self._warned(self._used.replaced())
            judged = self._judge_complete(started)
            if judged:
                progress = time.monotonic()
            if once:
                awaited = (pending if awaited is None else awaited & pending) - judged
                looks += 1
                waited_enough = looks > 1 and time.monotonic() - progress > self._options.grace
                if not awaited or (waited_enough and awaited <= self._arrivals.changing):
                    return
            self._page.write_if_due(self._options.report_every)
            time.sleep(max(0.0, started + self._options.interval - time.monotonic()))

    def _look(self) -> set[str]:
        pending = self._arrivals.look()
        if (pending is not None) != self._there:
            self._there = pending is not None
            state = "is back" if self._there else "is gone: waiting for it"
            print(f"ideal: the folder {str(self._out.folder)!r} {state}", file=sys.stderr, flush=True)
        return pending or set()

    def _judge_complete(self, now: float) -> set[str]:
        """Judge what is complete, a batch at a time; returns the names."""
        arrivals = self._arrivals.complete(now) if self._there else iter(())
        names: set[str] = set()
        while batch := list(islice(arrivals, self._options.batch_size)):
            readable = [(arrival.pixels, arrival.name) for arrival in batch if arrival.pixels is not None]
            results = self._judge([pixels for pixels, _ in readable], [name for _, name in readable])
            for arrival in batch:
                self._take(arrival, {"error": arrival.error} if arrival.pixels is None else next(results))
                names.add(arrival.name)
            self._page.write_if_due(self._options.report_every)
        return names

    def _take(self, arrival: Arrival, result: dict[str, Any]) -> None:
        """Keep a result: first the overlay, then the line in the log, which makes the picture a known one."""
        entry = {"image": arrival.name, **result}
        overlay: Image.Image | None = None
        if "error" not in entry:
            overlay = entry.pop("overlay")
            self._note_drift(self._drift.add(entry.pop("anomaly_map")))
            entry["overlay"] = overlay_name(arrival)
            write_atomically(self._out.path / entry["overlay"], rgb_png(np.asarray(overlay)))
        entry["time"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry |= {"sha256": arrival.sha256, "file": list(arrival.signature), KEY: self._used.key}
        self._log.append(entry)
        self._arrivals.judged(arrival)
        self.judged.append({name: entry[name] for name in ("image", "label", "error") if name in entry})
        self._page.add(entry, arrival.pixels, overlay)
        self._say(json.dumps(entry) if self._options.json else _line(entry))

    def _note_drift(self, warning: str | None) -> None:
        if self._page.drift is None:
            self._warned(warning)
        self._page.drift = warning

    def _warned(self, warning: str | None) -> str | None:
        if warning is not None:
            print(f"ideal: warning: {warning}", file=sys.stderr, flush=True)
        return warning


def overlay_name(arrival: Arrival) -> str:
    """The overlay of a picture; after a kill between the overlay and the log, the same again."""
    stem = Path(arrival.name).stem.encode("utf-8", "surrogateescape")[:LONGEST_STEM].decode("utf-8", "ignore")
    return f"{OVERLAYS}/{stem}_{arrival.sha256[:12]}.png"


def _line(entry: dict[str, Any]) -> str:
    """A result in a line, for a terminal."""
    words = [entry["time"], kind_of(entry), printable(entry["image"])]
    if "error" in entry:
        return "  ".join([*words[:2], printable(entry["error"])])
    kind = [printable(entry["type"])] if entry.get("type") else []
    return "  ".join([*words, f"score {entry['score']:.3g}, threshold {entry['threshold']:.3g}", *kind])
