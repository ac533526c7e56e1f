"""Results as tables: for a terminal, as CSV and as Parquet."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from ..report.page import printable, reason, shown_share
from ..writing.tables import text_table

COLUMNS = ("image", "label", "type", "score", "threshold", "confidence", "regions", "box", "overlay", "error")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a cell that begins so

Entry = Mapping[str, Any]


def as_text(entries: Sequence[Entry]) -> str:
    """Make a table with a row per image and the columns that any image has; an error follows at the end of its row."""
    names = ("label", "type", "score", "threshold", "confidence")
    columns = [name for name in names if any(name in entry for entry in entries)]
    words = 1 + sum(name in ("label", "type") for name in columns)
    rows = []
    for entry in entries:
        row = [entry["image"], *(_shown(name, entry.get(name)) for name in columns)]
        row = [*row, reason(entry)] if "error" in entry else row
        rows.append([printable(cell) for cell in row])
    return text_table(["image", *columns], rows, words)


def _shown(name: str, value: Any) -> str:
    """A cell for people: scores may be small, so they have three digits that count."""
    if isinstance(value, float):
        return shown_share(value) if name == "confidence" else f"{value:.3g}"
    return value or ""


def as_csv(entries: Sequence[Entry]) -> bytes:
    """The results as CSV: `regions` is their number, and `box` the x0 y0 x1 y1 of the highest one."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)  # ends lines with \r\n, and so quotes a name that has either
    writer.writerow(COLUMNS)
    for entry in entries:
        writer.writerow([_cell(name, value) for name, value in _row(entry).items()])
    return buffer.getvalue().encode("utf-8", "backslashreplace")


def as_parquet(entries: Sequence[Entry]) -> bytes:
    """The results as Parquet, with the columns of the CSV, and `boxes`, the boxes of all regions."""
    import pyarrow
    import pyarrow.parquet

    numbers = dict.fromkeys(("score", "threshold", "confidence"), pyarrow.float64())
    types: dict[str, Any] = {name: numbers.get(name, pyarrow.string()) for name in COLUMNS if name != "box"}
    types |= {"regions": pyarrow.int64(), "boxes": pyarrow.list_(pyarrow.list_(pyarrow.int64()))}
    rows = []
    for entry in entries:
        row = {name: _text(value) for name, value in _row(entry).items() if name in types}
        rows.append({**row, "boxes": [list(region["box"]) for region in entry.get("regions", ())]})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(list(types.items()))), buffer)
    return buffer.getvalue()


def _row(entry: Entry) -> dict[str, Any]:
    regions = entry.get("regions")
    row = {name: entry.get(name) for name in COLUMNS}
    row["regions"] = None if regions is None else len(regions)
    row["box"] = " ".join(map(str, regions[0]["box"])) if regions else None
    return row


def _cell(name: str, value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    return f"./{value}" if name == "image" else f"'{value}"  # the path stays one


def _text(value: Any) -> Any:
    """A value that Arrow can store: bytes of a name that are no text are escaped."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
