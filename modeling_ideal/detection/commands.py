"""The implementation of `ideal references` and `ideal detect`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import pipeline

from .. import IDEAL_TINY
from ..data.images import png_bytes
from ..pipeline_ideal import TASK, AnomalyDetectionPipeline
from ..writing.files import write_atomically, write_json
from ..writing.tables import text_table
from .files import find_images, images_below, match_masks, types_by_folder, unique_names


def encode_references(arguments: argparse.Namespace) -> str:
    """Encode the references that the arguments name to a file, and return a summary with any warning."""
    out = Path(arguments.out)
    if not out.parent.is_dir():
        raise ValueError(f"--out: expected a file in an existing folder, got {str(out)!r}")
    normal = images_below(arguments.normal, "--normal")
    abnormal = images_below(arguments.abnormal, "--abnormal")
    if not normal and not abnormal:
        raise ValueError("expected --normal DIR, --abnormal DIR or both, got neither")
    masks = match_masks(abnormal, arguments.abnormal, arguments.masks) if arguments.masks else None
    types = types_by_folder(abnormal, arguments.abnormal) if arguments.types else None
    references = _load_pipeline(arguments).set_references(
        normal=normal or None,
        abnormal=abnormal or None,
        masks=masks,
        types=types,
        # A threshold needs normal images or masks, and in tiles at least two normal images.
        false_alarm=arguments.false_alarm if (len(normal) > 1 if arguments.tiling else normal or masks) else None,
        tiling=arguments.tiling or None,
    )
    references.save(out)
    lines = [f"{out}: {references}"]
    if references.calibration is not None:
        lines.append(f"threshold {references.calibration.threshold:.3f} for {arguments.false_alarm:.1%} false alarms")
        if references.calibration.warning:
            lines.append(f"warning: {references.calibration.warning}")
    return "\n".join(lines)


def detect(arguments: argparse.Namespace) -> tuple[str, bool]:
    """Detect anomalies, and write results.json and overlays; returns a table, and whether all images could be read."""
    images = find_images(arguments.images)
    pipe = _load_pipeline(arguments)
    pipe.set_references(arguments.references)
    out = Path(arguments.out)
    (out / "overlays").mkdir(parents=True, exist_ok=True)
    options = {name: getattr(arguments, name) for name in ("threshold", "smoothing", "batch_size", "num_workers")}
    results = pipe(iter(images), return_regions=True, return_overlay=True, **options)
    entries = []
    names = unique_names(images)
    for image, name, result in tqdm(zip(images, names, results, strict=True), total=len(images), unit="image"):
        entry = {"image": str(image), **result}
        if "error" not in entry:
            write_atomically(out / "overlays" / name, png_bytes(entry.pop("overlay")))
            entry["overlay"] = f"overlays/{name}"
            del entry["anomaly_map"]
        entries.append(entry)
    report = {"model": str(pipe.model.name_or_path), "references": str(arguments.references), "images": entries}
    write_json(out / "results.json", report)
    return _table(entries), not any("error" in entry for entry in entries)


def _load_pipeline(arguments: argparse.Namespace) -> AnomalyDetectionPipeline:
    return pipeline(TASK, model=str(arguments.model or IDEAL_TINY))


def _table(entries: Sequence[dict[str, Any]]) -> str:
    """Make a table with a row per image and the columns that any image has; an error follows at the end of its row."""
    columns = [name for name in ("label", "type", "score", "probability") if any(name in entry for entry in entries)]
    words = 1 + sum(name in ("label", "type") for name in columns)
    rows = []
    for entry in entries:
        cells = [entry.get(name) for name in columns]
        row = [entry["image"], *(f"{cell:.3f}" if isinstance(cell, float) else cell or "" for cell in cells)]
        rows.append([*row, entry["error"]] if "error" in entry else row)
    return text_table(["image", *columns], rows, words)
