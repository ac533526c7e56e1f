"""The implementation of `ideal detect`."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..image_inputs import ImageInput
from ..references import IdealReferences
from ..writing.places import OutputFolder
from .commands import load_pipeline, set_references
from .drift import DriftWatch
from .files import OVERLAYS, find_images, unique_names
from .judging import Judge
from .results import FILES, Results
from .tables import as_text
from .video import check_videos, frame_file, is_video, read_frames

Row = tuple[str, ImageInput, dict[str, Any], str]  # name, picture, result, overlay
PROGRESS = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"


def detect(arguments: argparse.Namespace) -> tuple[str, dict[str, int]]:
    """Detect anomalies, and write results, report and overlays.

    A run that is stopped leaves the results of the pictures before that, with `"complete": false`.

    Returns:
        What to print, and the number of pictures of each kind.
    """
    check_arguments(arguments)
    videos = [word for word in arguments.images if is_video(word)]
    check_videos(videos, arguments.every)
    words = [word for word in arguments.images if word not in videos]
    images = find_images(words) if words else []
    overlays = [f"{OVERLAYS}/"] if videos else [f"{OVERLAYS}/{name}" for name in unique_names(images)]
    out = OutputFolder(Path(arguments.out), "detect", [*FILES, *overlays])
    judge, facts, drift = load_judge(arguments)
    total = None if videos else len(images)
    rows = _judged(judge, images, videos, arguments)
    results = Results(out, facts, total, arguments.parquet, drift)
    try:
        for row in tqdm(rows, total=total, unit=" pictures", bar_format=PROGRESS, disable=None):
            results.add(*row)
    except BaseException:
        with suppress(OSError, ValueError):  # a full disk, or a folder that is gone, is the reason, and said below
            results.stop()
        raise
    summary = results.finish()
    if arguments.json:
        return results.as_json(), results.counts()
    lines = [as_text(results.entries), *(f"warning: {warning}" for warning in results.warnings), summary]
    return "\n".join(lines), results.counts()


def _judged(judge: Judge, images: list[Path], videos: list[str], arguments: argparse.Namespace) -> Iterator[Row]:
    """Judge pictures, then videos; what is wrong with the options raises ValueError at once."""
    used: set[str] = set()
    pictures = _rows(judge, [str(image) for image in images], images, unique_names(images, used))
    return chain(pictures, *(_judged_frames(judge, video, arguments, used) for video in videos))


def _judged_frames(judge: Judge, video: str, arguments: argparse.Namespace, used: set[str]) -> Iterator[Row]:
    """Judge a video, a batch of frames at a time; one that cannot be read is an error."""
    frames = read_frames(video, arguments.every)
    try:
        while batch := list(islice(frames, arguments.batch_size)):
            names = [frame.name for frame in batch]
            files = unique_names(map(frame_file, names), used)
            yield from _rows(judge, names, [frame.picture for frame in batch], files)
    except ValueError as error:
        yield video, "", {"error": str(error)}, ""


def _rows(judge: Judge, names: Sequence[str], pictures: Sequence[ImageInput], files: Iterator[str]) -> Iterator[Row]:
    overlays = (f"{OVERLAYS}/{file}" for file in files)
    return zip(names, pictures, judge(pictures, names), overlays, strict=True)


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse what can be seen to be wrong before anything is loaded."""
    if not Path(arguments.references).is_file():
        raise ValueError(f"--references: expected a file made by `ideal references`, got {arguments.references!r}")
    if arguments.parquet and find_spec("pyarrow") is None:
        raise ValueError("--parquet: expected pyarrow, which is not installed: pip install 'modeling-ideal[parquet]'")


def load_judge(arguments: argparse.Namespace) -> tuple[Judge, dict[str, Any], DriftWatch]:
    """Load references and model; returns the judge, what results say of them, and what notices drift."""
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
    return Judge(pipe, debug=getattr(arguments, "debug", False), **options), facts, DriftWatch(references)
