"""The files that `ideal detect` leaves: a log as it goes, and tables and a report made from it."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from .. import model_name
from ..image_inputs import ImageInput, load_image
from ..report.page import ANOMALOUS, ERROR, NORMAL, Report, count_kinds
from ..report.thumbnails import HighestPictures, Thumbnails, make_thumbnails
from ..writing.files import json_bytes
from ..writing.places import OutputFolder
from ..writing.png import rgb_png
from .drift import DriftWatch
from .log import ResultsLog, read_log
from .tables import as_csv, as_parquet

LOG, RESULTS, TABLE, PARQUET, PAGE = "results.jsonl", "results.json", "results.csv", "results.parquet", "report.html"
FILES = (LOG, RESULTS, TABLE, PARQUET, PAGE)
SECONDS_BETWEEN_WRITES = 10  # of the files that are made from the log
LARGEST_SHARE = 0.05  # of the time that these writes may take


class Results:
    """Results as they come, in memory and in an output folder.

    Args:
        folder: where to write.
        facts: what results.json says besides the results.
        total: the number of pictures, if it is known.
        parquet: whether to write results.parquet in the end.
        drift: notices when pictures differ from the references all over.
    """

    def __init__(
        self, folder: OutputFolder, facts: Mapping[str, Any], total: int | None, parquet: bool, drift: DriftWatch
    ) -> None:
        self.folder, self.facts, self.total, self.parquet = folder, dict(facts), total, parquet
        self._drift_watch = drift
        self.entries: list[dict[str, Any]] = []
        self.drift: str | None = None
        self._shown = HighestPictures()
        self._log = ResultsLog(folder.start(LOG))
        self._started = time.monotonic()
        self.write(complete=False)

    def encoded(self, picture: ImageInput, result: dict[str, Any]) -> dict[str, Any]:
        """The result of a picture, ready to be added, with thumbnails if they may be shown; in any thread."""
        if "error" in result or not self._shown.wants(result["score"]):
            return encoded(picture, result)
        return {**encoded(picture, result), "thumbnails": thumbnails_of(picture, result["overlay"])}

    def add(self, name: str, result: dict[str, Any], overlay: str) -> None:
        """Take the encoded result of a picture: first its overlay is written, then its line in the log."""
        entry = {"image": name, **result}
        if "error" not in entry:
            self.folder.write(overlay, entry.pop("overlay"))
            entry["overlay"] = overlay
            self._note_drift(name, entry.pop("anomaly_map"))
            thumbnails = entry.pop("thumbnails", None)
            if thumbnails is not None and self._shown.wants(entry["score"]):
                self._shown.add(overlay, entry["score"], thumbnails)
        self._log.append(entry)
        self.entries.append(entry)
        if time.monotonic() > self._next_write:
            self.write(complete=False)

    def _note_drift(self, name: str, anomaly_map: np.ndarray) -> None:
        warning = self._drift_watch.add(anomaly_map)
        if warning is not None and self.drift is None:
            self.drift = f"at {name}: {warning}"

    def write(self, complete: bool) -> None:
        """Make the other files anew, each complete or not there."""
        started = time.monotonic()
        self._complete = complete
        self.folder.write(RESULTS, self._json())
        self.folder.write(TABLE, as_csv(self.entries))
        if complete and self.parquet:
            self.folder.write(PARQUET, as_parquet(self.entries))
        self.folder.write(PAGE, self._page(complete).html())
        now = time.monotonic()
        self._next_write = now + max(SECONDS_BETWEEN_WRITES, (now - started) / LARGEST_SHARE)

    def stop(self) -> None:
        """Write the files of a run that is not complete; a result that was just being taken is in the log, or not."""
        self._log.close()
        self.entries = read_log(self.folder.path / LOG)
        self.write(complete=False)

    def finish(self, judged_before: bool = False) -> str:
        """Write all files for the last time; returns what was done, in a line, with the rate if it was done here."""
        self.write(complete=True)
        self._log.close()
        self.folder.finish()
        counts = self.counts()
        rate = len(self.entries) / max(time.monotonic() - self._started, 1e-9)
        speed = "" if judged_before else f"; {rate:.1f} pictures a second"
        pictures = "1 picture" if len(self.entries) == 1 else f"{len(self.entries)} pictures"
        return (
            f"{pictures}: {counts[ANOMALOUS]} anomalous, {counts[NORMAL]} normal, {counts[ERROR]} not judged{speed}. "
            f"Open {self.folder.path / PAGE}"
        )

    def as_json(self) -> str:
        """The content of results.json."""
        return self._json().decode().rstrip("\n")

    def _json(self) -> bytes:
        report = {**self.facts, "drift": self.drift, "counts": self.counts(), "complete": self._complete}
        return json_bytes({**report, "images": self.entries})

    def counts(self) -> dict[str, int]:
        """The number of pictures of each kind."""
        return count_kinds(self.entries)

    @property
    def warnings(self) -> list[str]:
        """What a user should know before trusting the verdicts."""
        return [*([self.drift] if self.drift else []), *self.facts["warnings"]]

    def _page(self, complete: bool) -> Report:
        facts = [f"References: {self.facts['references']}; model: {model_name(self.facts['model'])}"]
        if not complete:
            of_all = "" if self.total is None else f" of {self.total}"
            facts.append(f"Still running, or stopped: {len(self.entries)}{of_all} pictures so far")
        return Report(
            "Inspection report", facts, self.warnings, self.entries, self._shown.kept, folder=self.folder.path
        )


def encoded(_: ImageInput, result: dict[str, Any]) -> dict[str, Any]:
    """A result with the bytes of a PNG file as its overlay, and a single value, the median, as its map."""
    if "error" in result:
        return result
    middle = np.full((1, 1), float(np.median(result["anomaly_map"])))
    return {**result, "overlay": rgb_png(np.asarray(result["overlay"])), "anomaly_map": middle}


def thumbnails_of(picture: ImageInput | None, overlay: Image.Image) -> Thumbnails:
    """The thumbnails of a picture and its overlay; without the picture if it cannot be read any more."""
    try:
        pixels = None if picture is None else load_image(picture, "image")
    except ValueError:
        pixels = None
    return make_thumbnails(pixels, overlay)
