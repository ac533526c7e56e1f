"""Layouts in which a table lists the images: the split file of VisA, and the metadata file of the user's folder."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .folder import NORMAL, Entry, Layout, Listing, Problem, query_images, unused_images

VISA_TABLE = "split_csv/1cls.csv"
VISA_COLUMNS = ("object", "split", "label", "image", "mask")
METADATA = ("metadata.jsonl", "metadata.csv")
IMAGE_COLUMNS = ("image", "path", "file_name")
METADATA_COLUMNS = (*IMAGE_COLUMNS, "mask", "label", "category", "anomaly_type", "split")

Row = tuple[str, dict[str, Any]]
"""The place of a row, as "FILE line NUMBER", and its cells."""


def recognises_visa(listing: Listing) -> bool:
    """Whether the folder has the split file of VisA."""
    return listing.find(VISA_TABLE) is not None


def recognises_metadata(listing: Listing) -> bool:
    """Whether the folder has a metadata file."""
    return any(listing.find(name) for name in METADATA)


def read_visa(listing: Listing) -> tuple[list[Entry], list[Problem]]:
    """Read the one-class split of VisA, whose only anomaly type is "anomaly"."""
    table = listing.find(VISA_TABLE)
    if table is None:
        raise ValueError(f"{listing.root}: expected the table {VISA_TABLE} of the layout 'visa', found none")
    rows = list(_csv_rows(listing.root, table))
    for where, cells in rows:
        _check_columns(where, cells, VISA_COLUMNS, required=VISA_COLUMNS)
        cells["category"] = cells.pop("object")
        cells["label"] = {"normal": 0, "anomaly": 1}.get(str(cells["label"]).lower(), cells["label"])
        cells["anomaly_type"] = "anomaly" if cells["label"] == 1 else NORMAL
    return _entries(listing, rows, unused_images)


def read_metadata(listing: Listing) -> tuple[list[Entry], list[Problem]]:
    """Read a metadata file: one image per row, in the columns of the records.

    `image` (or `path`, or `file_name`), a file below the root, and `label`, 0 or 1, are required.
    `mask` is a file or, in JSON lines, a list of files; `category` defaults to the name of the root,
    `anomaly_type` to "anomalous" for label 1, and `split` to "train" for label 0 and "test" for label 1.
    """
    tables = [table for name in METADATA if (table := listing.find(name))]
    if len(tables) != 1:
        raise ValueError(f"{listing.root}: expected one of {', '.join(METADATA)}, found {tables or 'none'}")
    read_rows = _csv_rows if tables[0].lower().endswith(".csv") else _json_rows
    rows = list(read_rows(listing.root, tables[0]))
    for where, cells in rows:
        _check_columns(where, cells, METADATA_COLUMNS, required=("label",))
    return _entries(listing, rows, query_images)


def _csv_rows(root: Path, table: str) -> Iterator[Row]:
    with open(root / table, newline="", encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream, restkey="more cells than columns")
        for cells in reader:
            yield f"{table} line {reader.line_num}", {key.strip(): value for key, value in cells.items()}


def _json_rows(root: Path, table: str) -> Iterator[Row]:
    with open(root / table, encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            where = f"{table} line {number}"
            if not line.strip():
                continue
            try:
                cells = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where}: expected a JSON object, got {line.strip()[:80]!r}") from error
            if not isinstance(cells, dict):
                raise ValueError(f"{where}: expected a JSON object, got {line.strip()[:80]!r}")
            yield where, cells


def _check_columns(where: str, cells: dict[str, Any], known: tuple[str, ...], required: tuple[str, ...]) -> None:
    unknown = sorted(set(cells) - set(known))
    missing = sorted(set(required) - set(cells))
    if unknown or missing:
        raise ValueError(
            f"{where}: expected the columns {', '.join(known)}, "
            f"got unknown {', '.join(unknown) or 'none'} and missing {', '.join(missing) or 'none'}"
        )


def _entries(
    listing: Listing, rows: list[Row], unused: Callable[[Listing, set[str]], Iterator[Problem]]
) -> tuple[list[Entry], list[Problem]]:
    entries: list[Entry] = []
    problems: list[Problem] = []
    for where, cells in rows:
        absent = [name for name in (_image_cell(where, cells), *_mask_cells(cells)) if not listing.find(name)]
        if absent:
            problems.append(Problem("error", "missing file", absent[0], f"{where}: {absent[0]} does not exist"))
        else:
            entries.append(_entry(listing, where, cells))
    for file, count in Counter(entry.file for entry in entries).items():
        if count > 1:
            problems.append(Problem("error", "repeated image", file, f"{file} is in {count} rows: expected one"))
    used = {file for entry in entries for file in (entry.file, *entry.masks)}
    return entries, [*problems, *unused(listing, used)]


def _image_cell(where: str, cells: dict[str, Any]) -> str:
    image = next((cells[column] for column in IMAGE_COLUMNS if cells.get(column)), None)
    if image is None:
        raise ValueError(f"{where}: expected a file in one of the columns {', '.join(IMAGE_COLUMNS)}, got none")
    return str(image)


def _mask_cells(cells: dict[str, Any]) -> list[str]:
    mask = cells.get("mask") or []
    return mask if isinstance(mask, list) else [str(mask)]


def _entry(listing: Listing, where: str, cells: dict[str, Any]) -> Entry:
    label = _choice(where, "label", cells["label"], ("0", "1"))
    default_split = "train" if label == "0" else "test"
    split = _choice(where, "split", cells.get("split") or default_split, ("train", "test"))
    anomaly_type = str(cells.get("anomaly_type") or (NORMAL if label == "0" else "anomalous"))
    if (anomaly_type.lower() == NORMAL) != (label == "0"):
        raise ValueError(
            f"{where}: expected anomaly_type {NORMAL!r} for label 0 only, got {anomaly_type!r} for label {label}"
        )
    files = [listing.find(name) or name for name in (_image_cell(where, cells), *_mask_cells(cells))]
    category = str(cells.get("category") or listing.name)
    return Entry(files[0], category, NORMAL if label == "0" else anomaly_type, split, tuple(files[1:]))


def _choice(where: str, column: str, value: Any, choices: tuple[str, ...]) -> str:
    text = str(value).strip().lower()
    if text not in choices:
        raise ValueError(f"{where}: expected {' or '.join(choices)} in the column {column!r}, got {value!r}")
    return text


TABLE_LAYOUTS = {
    "visa": Layout(
        "split_csv/1cls.csv with the columns object, split, label, image, mask",
        recognises_visa,
        lambda listing, valid_as: read_visa(listing),
    ),
}
