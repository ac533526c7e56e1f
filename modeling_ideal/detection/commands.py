"""The implementation of `ideal references` and `ideal detect`."""

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import category

from torch.utils.data import Dataset
from tqdm import tqdm
from transformers import pipeline

from .. import IDEAL_TINY
from ..data.images import png_bytes
from ..devices import choose_device
from ..pipeline_ideal import TASK, AnomalyDetectionPipeline
from ..references import IdealReferences
from ..writing.files import json_bytes
from ..writing.places import OutputFolder, check_file
from ..writing.tables import text_table
from .files import OVERLAYS, find_images, given_pictures, unique_names

RESULTS = "results.json"
SECONDS_BETWEEN_WRITES = 10  # of results.json, so that a run that is killed loses little


def encode_references(arguments: argparse.Namespace) -> str:
    """Encode the references that the arguments name to a file, and return a summary with any warnings."""
    out = Path(arguments.out)
    check_file(out, "--out", replaces=is_references_file, kind="a references file")
    given = given_pictures(arguments)
    references = set_references(
        load_pipeline(arguments),
        **given._asdict(),
        # A threshold needs normal images or masks.
        false_alarm=arguments.false_alarm if given.normal or given.masks else None,
        tiling=arguments.tiling or None,
        keep_pictures=not arguments.no_pictures,
    )
    return save_references(references, out)


def save_references(references: IdealReferences, out: Path) -> str:
    """Write a references file, and return a summary with any warnings."""
    references.save(out)
    lines, calibration = [f"{out}: {references}"], references.calibration
    if calibration is not None:
        lines.append(f"threshold {calibration.threshold:.3f} for {calibration.false_alarm:.1%} false alarms")
    return "\n".join([*lines, *(f"warning: {warning}" for warning in references.warnings)])


def detect(arguments: argparse.Namespace) -> tuple[str, bool]:
    """Detect anomalies, and write results.json and overlays; returns a table, and whether all images could be read.

    A run that is stopped leaves a results.json of the images before that, with `"complete": false`.
    """
    if not Path(arguments.references).is_file():
        raise ValueError(f"--references: expected a file made by `ideal references`, got {arguments.references!r}")
    images = find_images(arguments.images)
    overlays = [f"{OVERLAYS}/{name}" for name in unique_names(images)]
    out = OutputFolder(Path(arguments.out), "detect", [*overlays, RESULTS])
    loaded = IdealReferences.load(arguments.references)  # before the model: a damaged file is noticed at once
    pipe = load_pipeline(arguments)
    references = set_references(pipe, references=loaded)
    beware = references.warnings if arguments.threshold is None else []  # they are about the other threshold
    entries: list[dict[str, Any]] = []
    report = {
        "model": str(pipe.model.name_or_path),
        "references": str(arguments.references),
        "warnings": beware,
        "complete": False,
        "images": entries,
    }
    options = {name: getattr(arguments, name) for name in ("threshold", "smoothing", "batch_size", "num_workers")}
    results = pipe(_Files(images), return_regions=True, return_overlay=True, **options)
    out.write(RESULTS, json_bytes(report))
    written = time.monotonic()
    try:
        for image, overlay, result in tqdm(
            zip(images, overlays, results, strict=True), total=len(images), unit="image"
        ):
            entry = {"image": str(image), **result}
            if "error" not in entry:
                out.write(overlay, png_bytes(entry.pop("overlay")))
                entry["overlay"] = overlay
                del entry["anomaly_map"]
            entries.append(entry)
            if time.monotonic() - written > SECONDS_BETWEEN_WRITES:
                out.write(RESULTS, json_bytes(report))
                written = time.monotonic()
        report["complete"] = True
    finally:
        out.write(RESULTS, json_bytes(report))
    out.finish()
    table = "\n".join([_table(entries), *(f"warning: {warning}" for warning in beware)])
    return table, not any("error" in entry for entry in entries)


class _Files(Dataset):
    """Image files as a data set with an index, which the pipeline reads in several processes, on demand."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Path:
        return self.paths[index]


def load_pipeline(arguments: argparse.Namespace) -> AnomalyDetectionPipeline:
    """The pipeline that --model and --device name."""
    return pipeline(TASK, model=str(arguments.model or IDEAL_TINY), device=choose_device(arguments.device))


def set_references(pipe: AnomalyDetectionPipeline, **given: Any) -> IdealReferences:
    """Set the references of a pipeline, without the warnings that it emits: the commands print them in their place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return pipe.set_references(**given)


def is_references_file(path: Path) -> bool:
    """Whether a file is one that `ideal references` wrote."""
    try:
        IdealReferences.load(path)
    except ValueError:
        return False
    return True


def _table(entries: Sequence[dict[str, Any]]) -> str:
    """Make a table with a row per image and the columns that any image has; an error follows at the end of its row."""
    columns = [name for name in ("label", "type", "score", "confidence") if any(name in entry for entry in entries)]
    words = 1 + sum(name in ("label", "type") for name in columns)
    rows = []
    for entry in entries:
        cells = [entry.get(name) for name in columns]
        row = [entry["image"], *(f"{cell:.3f}" if isinstance(cell, float) else cell or "" for cell in cells)]
        row = [*row, entry["error"]] if "error" in entry else row
        rows.append([_printable(cell) for cell in row])
    return text_table(["image", *columns], rows, words)


def _printable(text: str) -> str:
    """Text on one line: line breaks, other control characters and bytes that are no text are escaped."""
    return "".join(
        letter if letter.isprintable() or category(letter) == "Zs" else letter.encode("unicode_escape").decode()
        for letter in text
    )
