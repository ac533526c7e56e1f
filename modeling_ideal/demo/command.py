"""`ideal demo`: references, detection and an HTML page, all on rendered images."""

import time
import warnings
from pathlib import Path
from typing import Any

from transformers import pipeline

from .. import IDEAL_TINY
from ..data.images import png_bytes
from ..devices import choose_device
from ..pipeline_ideal import TASK
from ..report.page import CONFIDENCE, Report
from ..report.thumbnails import make_thumbnails
from ..writing.files import json_bytes
from ..writing.places import OutputFolder
from ..writing.tables import text_table
from .rendering import DEFECTS, Part, render_part

NUM_NORMAL = 6
KNOWN = ("scratch", "rust")  # types of defects with a reference; the others are unknown to the model
QUERIES = ("good", "good", "good", *DEFECTS, "good", *DEFECTS)
FIRST_QUERY_SEED = 100
WRITTEN_LAST = ("results.json", "index.html")

Verdict = dict[str, Any]


def demo(out: Path, model: str | None = None, device: str | None = None) -> str:
    """Detect defects in rendered parts, write `out / "index.html"` and what it shows, and return a summary."""
    folder = OutputFolder(out, "demo", [*_picture_names(), *WRITTEN_LAST])
    normal = [render_part(seed) for seed in range(NUM_NORMAL)]
    abnormal = [render_part(NUM_NORMAL + place, defect) for place, defect in enumerate(KNOWN)]
    queries = [render_part(FIRST_QUERY_SEED + place, defect) for place, defect in enumerate(QUERIES)]
    detector = pipeline(TASK, model=str(model or IDEAL_TINY), device=choose_device(device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # printed below the table
        references = detector.set_references(
            normal=[part.image for part in normal],
            abnormal=[part.image for part in abnormal],
            masks=[part.mask for part in abnormal],
            types=list(KNOWN),
        )
    started = time.perf_counter()
    results = detector([part.image for part in queries], return_overlay=True, return_regions=True)
    seconds = (time.perf_counter() - started) / len(queries)
    pairs = enumerate(zip(queries, results, strict=True))
    verdicts = [_verdict(place, part, result) for place, (part, result) in pairs]
    pictures = [part.image for part in normal]
    pictures += [picture for part in abnormal for picture in (part.image, part.mask) if picture is not None]
    for part, result in zip(queries, results, strict=True):
        pictures += [part.image, result["overlay"]]
    for name, picture in zip(_picture_names(), pictures, strict=True):
        folder.write(name, png_bytes(picture))
    page = _page(out, verdicts, results, queries, [*normal, *abnormal], references.warnings)
    contents = json_bytes(verdicts), page
    for name, content in zip(WRITTEN_LAST, contents, strict=True):
        folder.write(name, content)
    folder.finish()
    beware = [f"warning: {warning}" for warning in references.warnings]
    return "\n".join([_table(verdicts), *beware, "", f"{seconds * 1000:.0f} ms per image. Open {out / 'index.html'}"])


def _picture_names() -> list[str]:
    """The names of all pictures: normal references, abnormal ones with their masks, queries with their overlays."""
    names = [f"normal_{place:02}.png" for place in range(NUM_NORMAL)]
    for place in range(len(KNOWN)):
        names += [f"abnormal_{place:02}.png", f"abnormal_{place:02}_mask.png"]
    for place in range(len(QUERIES)):
        names += [f"query_{place:02}.png", f"query_{place:02}_overlay.png"]
    return names


def _verdict(place: int, part: Part, result: Verdict) -> Verdict:
    """The entry of a query in results.json and in the table."""
    verdict = {"picture": f"query_{place:02}.png", "truth": part.defect, "label": result["label"]}
    for name in ("score", "threshold", "confidence"):
        verdict[name] = round(result[name], 4)
    return {**verdict, "type": result["type"]}


def _table(verdicts: list[Verdict]) -> str:
    head = ["picture", "truth", "label", "type", "score", "threshold", "confidence"]
    rows = [
        [
            *(verdict[name] or "" for name in ("picture", "truth", "label", "type")),
            *(f"{verdict[name]:.3f}" for name in ("score", "threshold")),
            f"{verdict['confidence']:.2f}",
        ]
        for verdict in verdicts
    ]
    right = sum((verdict["truth"] == "good") == (verdict["label"] == "normal") for verdict in verdicts)
    return f"{text_table(head, rows, words=4)}\n{right} of {len(verdicts)} right. {CONFIDENCE}."


def _page(
    out: Path,
    verdicts: list[Verdict],
    results: list[Verdict],
    queries: list[Part],
    references: list[Part],
    beware: list,
) -> bytes:
    """Make the HTML page: the references, then each query with its heat map and result, as `ideal detect` has it."""
    shown = [(part.image, "good") for part in references if part.mask is None]
    for part in references:
        if part.mask is not None:
            shown += [(part.image, part.defect), (part.mask, f"mask of the {part.defect}")]
    entries, thumbnails = [], {}
    for verdict, result, part in zip(verdicts, results, queries, strict=True):
        overlay = verdict["picture"].replace(".png", "_overlay.png")
        entries.append({**verdict, "image": verdict["picture"], "overlay": overlay, "regions": result["regions"]})
        thumbnails[overlay] = make_thumbnails(part.image, result["overlay"])
    unknown = " or a ".join(defect for defect in DEFECTS if defect not in KNOWN)
    report = Report(
        "IDEAL: anomaly detection from a few reference images",
        [f"Rendered parts, judged with the references below. No reference shows a {unknown}."],
        beware,
        entries,
        thumbnails,
        folder=out,
        pictures=out,
        references=[(make_thumbnails(picture, None), caption) for picture, caption in shown],
    )
    return report.html()
