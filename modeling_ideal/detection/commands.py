"""The work of `ideal references` and `ideal detect`."""

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
from .files import find_images, match_masks, pictures_below, types_by_folder, unique_names


def encode_references(arguments: argparse.Namespace) -> str:
    """Write the references file of a product; says what is in it, and what to mind."""
    out = Path(arguments.out)
    if not out.parent.is_dir():
        raise ValueError(f"--out: expected a file in a folder that exists, got {str(out)!r}")
    normal = pictures_below(arguments.normal, "--normal")
    abnormal = pictures_below(arguments.abnormal, "--abnormal")
    if not normal and not abnormal:
        raise ValueError("expected --normal DIR, --abnormal DIR or both, got neither")
    masks = match_masks(abnormal, arguments.abnormal, arguments.masks) if arguments.masks else None
    types = types_by_folder(abnormal, arguments.abnormal) if arguments.types else None
    references = _load_pipeline(arguments).set_references(
        normal=normal or None,
        abnormal=abnormal or None,
        masks=masks,
        types=types,
        # A threshold needs something that is known to be normal, in tiles two pictures of it.
        false_alarm=arguments.false_alarm if (len(normal) > 1 if arguments.tiling else normal or masks) else None,
        tiling=arguments.tiling or None,
    )
    references.save(out)
    lines = [f"{out}: {references}"]
    if references.calibration is not None:
        lines.append(f"threshold {references.calibration.threshold:.3f} for {arguments.false_alarm:.1%} false alarms")
        if references.calibration.warning:
            lines.append(f"mind: {references.calibration.warning}")
    return "\n".join(lines)


def detect(arguments: argparse.Namespace) -> tuple[str, bool]:
    """Judge pictures, into OUT/results.json and OUT/overlays; the table, and whether every picture could be read."""
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
    """A row for each image, with the columns that some image has something for; an error follows its row."""
    columns = [name for name in ("label", "type", "score", "probability") if any(name in entry for entry in entries)]
    words = 1 + sum(name in ("label", "type") for name in columns)
    rows = []
    for entry in entries:
        cells = [entry.get(name) for name in columns]
        row = [entry["image"], *(f"{cell:.3f}" if isinstance(cell, float) else cell or "" for cell in cells)]
        rows.append([*row, entry["error"]] if "error" in entry else row)
    return text_table(["image", *columns], rows, words)
