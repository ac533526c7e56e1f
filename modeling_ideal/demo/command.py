"""`ideal demo`: references, detection and a page to look at, all on rendered pictures."""

import html
import json
import shutil
import time
from pathlib import Path
from typing import Any

from transformers import pipeline

from ..data.atomic import write_atomically
from ..embedded_model import default_model
from ..pipeline_ideal import TASK
from .rendering import DEFECTS, Part, render_part

NUM_NORMAL = 6
KNOWN = ("scratch", "rust")  # the defects among the references; the others are new to the model
QUERIES = ("good", "good", "good", *DEFECTS, "good", *DEFECTS)
FIRST_QUERY_SEED = 100

Row = dict[str, Any]


def demo(out: Path, model: str | None = None) -> str:
    """Run the main job and write `out / "index.html"` with everything it shows; returns what to print."""
    normal = [render_part(seed) for seed in range(NUM_NORMAL)]
    abnormal = [render_part(NUM_NORMAL + place, defect) for place, defect in enumerate(KNOWN)]
    queries = [render_part(FIRST_QUERY_SEED + place, defect) for place, defect in enumerate(QUERIES)]
    if out.exists() and not (out / "results.json").exists() and any(out.iterdir()):
        raise ValueError(f"--out: expected a new folder, or one that the demo made, got {str(out)!r}")
    detector = pipeline(TASK, model=str(model or default_model()))
    detector.set_references(
        normal=[part.image for part in normal],
        abnormal=[part.image for part in abnormal],
        masks=[part.mask for part in abnormal],
        types=list(KNOWN),
    )
    started = time.perf_counter()
    results = detector([part.image for part in queries], return_overlay=True)
    seconds = (time.perf_counter() - started) / len(queries)
    rows = [_row(place, part, result) for place, (part, result) in enumerate(zip(queries, results, strict=True))]
    folder = out.with_name(f".{out.name}.new")  # whole or not at all
    shutil.rmtree(folder, ignore_errors=True)
    _write_pictures(folder, normal, abnormal, queries, results)
    write_atomically(folder / "results.json", (json.dumps(rows, indent=2) + "\n").encode())
    write_atomically(folder / "index.html", _page(rows, len(normal), len(abnormal)).encode())
    shutil.rmtree(out, ignore_errors=True)
    folder.rename(out)
    return "\n".join([*_table(rows), "", f"{seconds * 1000:.0f} ms a picture. Open {out / 'index.html'}"])


def _row(place: int, part: Part, result: Row) -> Row:
    """A query's line of the table and of results.json."""
    row = {"picture": f"query_{place:02}.png", "truth": part.defect, "label": result["label"]}
    for name in ("score", "threshold", "probability"):
        row[name] = round(result[name], 4)
    return {**row, "type": result["type"]}


def _write_pictures(
    folder: Path, normal: list[Part], abnormal: list[Part], queries: list[Part], results: list[Row]
) -> None:
    folder.mkdir(parents=True)
    for place, part in enumerate(normal):
        part.image.save(folder / f"normal_{place:02}.png")
    for place, part in enumerate(abnormal):
        part.image.save(folder / f"abnormal_{place:02}.png")
        if part.mask is not None:
            part.mask.save(folder / f"abnormal_{place:02}_mask.png")
    for place, (part, result) in enumerate(zip(queries, results, strict=True)):
        part.image.save(folder / f"query_{place:02}.png")
        result["overlay"].save(folder / f"query_{place:02}_overlay.png")


def _table(rows: list[Row]) -> list[str]:
    lines = [f"{'picture':14}{'truth':14}{'label':11}{'score':>7}{'threshold':>11}{'sure':>7}  type"]
    for row in rows:
        lines.append(
            f"{row['picture']:14}{row['truth']:14}{row['label']:11}{row['score']:7.3f}{row['threshold']:11.3f}"
            f"{row['probability']:7.2f}  {row['type'] or ''}"
        )
    right = sum((row["truth"] == "good") == (row["label"] == "normal") for row in rows)
    return [*lines, f"{right} of {len(rows)} right"]


_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 1180px; color: #222 }
figure { display: inline-block; margin: 0 12px 18px 0; vertical-align: top }
img { width: 180px; border-radius: 4px }
figcaption { font-size: 13px; max-width: 366px }
.anomalous { color: #b00020 } .normal { color: #1b6e2c }
"""


def _page(rows: list[Row], num_normal: int, num_abnormal: int) -> str:
    """One HTML page: the references, then each query beside its heat map and the verdict."""
    references = [_figure([f"normal_{place:02}.png"], "good") for place in range(num_normal)]
    for place in range(num_abnormal):
        files = [f"abnormal_{place:02}.png", f"abnormal_{place:02}_mask.png"]
        references.append(_figure(files, f"{KNOWN[place]}, and where it is"))
    queries = []
    for row in rows:
        files = [row["picture"], row["picture"].replace(".png", "_overlay.png")]
        kind = f", {row['type']}" if row["type"] else ""
        verdict = f"<b class='{row['label']}'>{row['label']}{html.escape(kind)}</b>"
        figures = f"score {row['score']:.3f}, threshold {row['threshold']:.3f}, sure {row['probability']:.2f}"
        queries.append(_figure(files, f"{verdict}: {figures}<br>in truth: {row['truth']}"))
    return (
        f"<!doctype html><meta charset='utf-8'><title>IDEAL demo</title><style>{_STYLE}</style>"
        "<h1>IDEAL: a few photographs in, verdicts out</h1>"
        f"<h2>References</h2>{''.join(references)}"
        "<h2>New pictures</h2><p>Green is the threshold, red far above it; the scale is the same for all. "
        f"Dents and missing holes are on no reference.</p>{''.join(queries)}\n"
    )


def _figure(files: list[str], caption: str) -> str:
    images = " ".join(f"<img src='{file}' alt=''>" for file in files)
    return f"<figure>{images}<figcaption>{caption}</figcaption></figure>"
