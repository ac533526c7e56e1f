"""What a user takes away: results as JSON and CSV, the report, and the references file."""

from pathlib import Path
from typing import Any

from .. import model_name
from ..detection.contents import entries as reference_entries
from ..detection.tables import as_csv
from ..references import IdealReferences
from ..report.page import Report, count_kinds
from ..report.thumbnails import Thumbnails, make_thumbnails
from ..writing.files import json_bytes, write_atomically
from .session import Session
from .verdicts import verdict

RESULTS, TABLE, PAGE, REFERENCES = "results.json", "results.csv", "report.html", "references.safetensors"


def write_results(session: Session, model: str) -> list[Path]:
    """Write results and report at the threshold of the session, in its folder; ValueError if nothing was judged.

    Args:
        session: the session.
        model: the name of the model, or its folder.
    """
    if not session.judged or session.references is None:
        raise ValueError("expected references and judged pictures first, got none")
    folder, shown = session.folder(), []
    thumbnails: dict[str, Thumbnails] = {}
    for judged in session.judged:
        result = verdict(judged, session.calibration, session.threshold)
        name, overlay = judged.picture.name, result.pop("overlay")
        del result["anomaly_map"]
        thumbnails[name] = make_thumbnails(judged.picture.shown, overlay)
        shown.append({"image": name, **result})
    facts: dict[str, Any] = {
        "model": model_name(model),
        "references": repr(session.references),
        "warnings": session.references.warnings,
    }
    report = Report(
        "Inspection report",
        [f"Model: {facts['model']}", f"Threshold: {session.threshold:.3f}{_moved(session)}"],
        session.references.warnings,
        [{**entry, "overlay": entry["image"]} for entry in shown],
        thumbnails,
        references=_previews(session.references),
    )
    files = {
        RESULTS: json_bytes({**facts, "counts": count_kinds(shown), "images": shown}),
        TABLE: as_csv(shown),
        PAGE: report.html(),
    }
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def write_references(session: Session) -> Path:
    """Write the references file, in the folder of the session; ValueError if there are no references."""
    if session.references is None:
        raise ValueError("expected references first, got none")
    path = session.folder() / REFERENCES
    session.references.save(path)
    return path


def _moved(session: Session) -> str:
    """What to say of a threshold that is not that of the references."""
    own = session.calibration and session.calibration.threshold
    return "" if own in (None, session.threshold) else f", chosen by hand; that of the references is {own:.3f}"


def _previews(references: IdealReferences) -> list[tuple[Thumbnails, str]]:
    return [
        (make_thumbnails(entry.preview.picture(), None), ", ".join(filter(None, [entry.kind, entry.defect_type])))
        for entry in reference_entries(references)
        if entry.preview is not None
    ]
