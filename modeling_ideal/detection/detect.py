"""The implementation of `ideal detect`."""

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..references import IdealReferences
from ..writing.places import OutputFolder
from .commands import load_pipeline, set_references
from .files import OVERLAYS, find_images, unique_names
from .judging import Judge
from .results import FILES, Results
from .tables import as_text

PROGRESS = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"


def detect(arguments: argparse.Namespace) -> tuple[str, dict[str, int]]:
    """Detect anomalies, and write results, report and overlays.

    A run that is stopped leaves the results of the pictures before that, with `"complete": false`.

    Returns:
        What to print, and the number of pictures of each kind.
    """
    check_arguments(arguments)
    images = find_images(arguments.images)
    overlays = [f"{OVERLAYS}/{name}" for name in unique_names(images)]
    out = OutputFolder(Path(arguments.out), "detect", [*FILES, *overlays])
    judge, facts = load_judge(arguments)
    names = [str(image) for image in images]
    judged = judge(images, names)
    results = Results(out, facts, len(images), arguments.parquet)
    rows = zip(names, images, judged, overlays, strict=True)
    try:
        for row in tqdm(rows, total=len(images), unit=" pictures", bar_format=PROGRESS, disable=None):
            results.add(*row)
    except BaseException:
        results.write(complete=False)
        raise
    summary = results.finish()
    if arguments.json:
        return results.as_json(), results.counts()
    lines = [as_text(results.entries), *(f"warning: {warning}" for warning in results.warnings), summary]
    return "\n".join(lines), results.counts()


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse what can be seen to be wrong before anything is loaded."""
    if not Path(arguments.references).is_file():
        raise ValueError(f"--references: expected a file made by `ideal references`, got {arguments.references!r}")
    if arguments.parquet and find_spec("pyarrow") is None:
        raise ValueError("--parquet: expected pyarrow, which is not installed: pip install 'modeling-ideal[parquet]'")


def load_judge(arguments: argparse.Namespace) -> tuple[Judge, dict[str, Any]]:
    """Load references and model; returns the judge, and what results say of them."""
    loaded = IdealReferences.load(arguments.references)  # before the model: a damaged file is noticed at once
    pipe = load_pipeline(arguments)
    references = set_references(pipe, references=loaded)
    beware = references.warnings if arguments.threshold is None else []  # they are about the other threshold
    options = {name: getattr(arguments, name) for name in ("threshold", "smoothing", "batch_size", "num_workers")}
    facts = {
        "model": str(pipe.model.name_or_path),
        "references": str(arguments.references),
        "warnings": beware,
    }
    return Judge(pipe, debug=getattr(arguments, "debug", False), **options), facts
