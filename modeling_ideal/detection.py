"""`ideal references` and `ideal detect`: from folders of pictures to a references file, a table, JSON and overlays."""

import argparse
import glob
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import pipeline

from .data.atomic import write_atomically
from .data.folder import list_folder
from .data.images import is_image, png_bytes
from .embedded_model import default_model
from .pipeline_ideal import TASK, AnomalyDetectionPipeline

MASK_SUFFIX = "_mask"


def encode_references(arguments: argparse.Namespace) -> str:
    """Write the references file of a product; says what is in it, and what to mind."""
    out = Path(arguments.out)
    if not out.parent.is_dir():
        raise ValueError(f"--out: expected a file in a folder that exists, got {str(out)!r}")
    normal = _pictures_below(arguments.normal, "--normal")
    abnormal = _pictures_below(arguments.abnormal, "--abnormal")
    if not normal and not abnormal:
        raise ValueError("expected --normal DIR, --abnormal DIR or both, got neither")
    masks = match_masks(abnormal, arguments.abnormal, arguments.masks) if arguments.masks else None
    types = _types(abnormal, arguments.abnormal) if arguments.types else None
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
    names = _unique_names(images)
    for image, name, result in tqdm(zip(images, names, results, strict=True), total=len(images), unit="image"):
        entry = {"image": str(image), **result}
        if "error" not in entry:
            write_atomically(out / "overlays" / name, png_bytes(entry.pop("overlay")))
            entry["overlay"] = f"overlays/{name}"
            del entry["anomaly_map"]
        entries.append(entry)
    report = {"model": str(pipe.model.name_or_path), "references": str(arguments.references), "images": entries}
    write_atomically(out / "results.json", (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode())
    return _table(entries), not any("error" in entry for entry in entries)


def find_images(patterns: Sequence[str]) -> list[Path]:
    """The files that files, folders (with all below them) and globs name, in that order, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            files = _pictures_below(pattern, "IMAGES")
        elif path.exists() or not glob.has_magic(pattern):
            files = [path]  # one that is not there is reported in its place
        else:
            files = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
        if not files:
            raise ValueError(f"IMAGES: expected pictures, got none at {pattern!r}")
        found |= dict.fromkeys(files)
    return list(found)


def match_masks(images: Sequence[Path], root: str, folder: str) -> list[Path]:
    """The mask of each image below `root`: of its name, with or without `_mask`, in the same sub-folder or anywhere.

    ValueError that names every image without one, or with several.
    """
    masks = _pictures_below(folder, "--masks")
    by_place = {(path.relative_to(folder).parent, path.stem): path for path in masks}
    matched, problems = [], []
    for image in images:
        stems = (image.stem, image.stem + MASK_SUFFIX)
        beside = [by_place.get((image.relative_to(root).parent, stem)) for stem in stems]
        candidates = [path for path in beside if path] or [path for path in masks if path.stem in stems]
        if len(candidates) != 1:
            problems.append(f"{image} ({len(candidates) or 'none'})")
        matched += candidates[:1]
    if problems:
        raise ValueError(
            f"--masks: expected one mask for each abnormal picture, NAME or NAME{MASK_SUFFIX}, in {folder!r}; "
            f"not so for {', '.join(problems)}; to have the defects found for you, leave --masks out"
        )
    return matched


def _pictures_below(folder: str | None, name: str) -> list[Path]:
    if folder is None:
        return []
    files = [Path(folder) / file for file in list_folder(folder).files if is_image(file)]
    if not files:
        raise ValueError(f"{name}: expected a folder of pictures, got none below {folder!r}")
    return files


def _types(images: Sequence[Path], root: str) -> list[str]:
    """The sub-folder that each image lies in."""
    types = [image.relative_to(root).parent.as_posix() for image in images]
    if not types or "." in types:
        raise ValueError(f"--types: expected every picture of --abnormal in a sub-folder of its type, got {root!r}")
    return types


def _load_pipeline(arguments: argparse.Namespace) -> AnomalyDetectionPipeline:
    return pipeline(TASK, model=str(arguments.model or default_model()))


def _unique_names(images: Iterable[Path]) -> Iterator[str]:
    """A PNG name for each image; a number keeps those apart that are called alike."""
    used: set[str] = set()
    for image in images:
        name, number = f"{image.stem}.png", 1
        while name in used:
            number += 1
            name = f"{image.stem}_{number}.png"
        used.add(name)
        yield name


def _table(entries: Sequence[dict[str, Any]]) -> str:
    """A row an image: what is in every column that some image has something for."""
    columns = [name for name in ("score", "probability", "label", "type") if any(name in entry for entry in entries)]
    rows = [["image", *columns]]
    for entry in entries:
        cells = [entry.get(name) for name in columns]
        rows.append([entry["image"], *(f"{cell:.3f}" if isinstance(cell, float) else cell or "" for cell in cells)])
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    errors = ["", *(entry.get("error", "") for entry in entries)]
    return "\n".join((line + error).rstrip() for line, error in zip(lines, errors, strict=True))
