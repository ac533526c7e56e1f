"""The implementation of `ideal detect`."""

import argparse
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..image_inputs import ImageInput
from ..writing.places import OutputFolder
from .files import OVERLAYS, find_images, unique_names
from .judging import Finish, Judge, load_judge
from .ray_actors import check_ray, judged_by_ray
from .results import FILES, Results, encoded
from .shares import Place, Shares
from .tables import as_text
from .video import check_videos, frame_file, is_video, read_frames

Row = tuple[str, dict[str, Any], str]  # name, encoded result, overlay
NOTHING = {"anomalous": 0, "normal": 0, "error": 0}
PROGRESS = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"


def detect(arguments: argparse.Namespace) -> tuple[str, dict[str, int]]:
    """Detect anomalies, and write results, report and overlays.

    A run that is stopped leaves the results of the pictures before that, with `"complete": false`. Several processes,
    or actors of Ray, each judge a share, and the first process writes the results of all.

    Returns:
        What to print, and the number of pictures of each kind; none of any where a launcher has started the process.
    """
    check_arguments(arguments)
    videos = [word for word in arguments.images if is_video(word)]
    check_videos(videos, arguments.every)
    words = [word for word in arguments.images if word not in videos]
    images = find_images(words) if words else []
    place = Place.of_this_process()
    check_ray(arguments, place)
    alone = place.processes == 1 and not arguments.ray
    if videos and not alone:
        raise ValueError(f"IMAGES: expected pictures for several processes, got the video {videos[0]!r}")
    names = list(unique_names(images))
    overlays = [f"{OVERLAYS}/"] if videos else [f"{OVERLAYS}/{name}" for name in names]
    # Others than the first process write to the folder of shares alone.
    out = OutputFolder(Path(arguments.out), "detect", [*FILES, *overlays]) if place.rank == 0 else None
    judge, facts, drift = load_judge(arguments)
    shares = None
    if not alone:
        shares = Shares(Path(arguments.out), images, names, _settings(arguments, judge))
        _judge_shares(judge, shares, place, arguments)
    if out is None:
        return "", NOTHING
    total = None if videos else len(images)

    def finish(picture: ImageInput, result: dict[str, Any]) -> dict[str, Any]:
        return results.encoded(picture, result)  # which are there before the first of them

    rows = _gathered(shares, finish) if shares else _shown(_judged(judge, images, videos, arguments, finish), total)
    results = Results(out, facts, total, arguments.parquet, drift)  # once the options are known to be right
    try:
        for row in rows:
            results.add(*row)
    except BaseException:
        with suppress(OSError, ValueError):  # a full disk, or a folder that is gone, is the reason, and said below
            results.stop()
        raise
    summary = results.finish(judged_before=shares is not None)
    counts = results.counts()
    if shares is not None:
        shares.remove()
    if place.processes > 1:
        counts = NOTHING  # a launcher takes any other exit code than 0 for a failure
    if arguments.json:
        return results.as_json(), counts
    lines = [as_text(results.entries), *(f"warning: {warning}" for warning in results.warnings), summary]
    return "\n".join(lines), counts


def _settings(arguments: argparse.Namespace, judge: Judge) -> list[Any]:
    """What verdicts depend on besides the pictures."""
    references = hashlib.sha256(Path(arguments.references).read_bytes()).hexdigest()
    model = judge.pipe.model
    return [references, model.fingerprint, model.config.top_fraction, arguments.threshold, arguments.smoothing]


def _judge_shares(judge: Judge, shares: Shares, place: Place, arguments: argparse.Namespace) -> None:
    """Judge what is missing: all of it with Ray, or this process's share; the first process waits for the others."""
    if arguments.ray:
        for _ in _shown(judged_by_ray(shares, arguments), len(shares.images)):
            pass
        return
    _judge_share(judge, shares, place)
    if place.rank == 0:
        shares.wait(place)


def _judge_share(judge: Judge, shares: Shares, place: Place) -> None:
    """Judge what is missing of this process's share."""
    images = shares.missing(place)
    names = [str(image) for image in images]
    results = zip(names, judge(images, names, encoded) if images else (), strict=True)
    log, complete = shares.open(place), False
    try:
        for name, result in _shown(results, len(names)) if place.rank == 0 else results:
            log.add(name, result)
        complete = True
    finally:
        log.close(complete)


def _shown(rows: Iterable[Any], total: int | None) -> Iterator[Any]:
    """Rows with a progress bar, where a person can see it."""
    return iter(tqdm(rows, total=total, unit=" pictures", bar_format=PROGRESS, disable=None))


def _gathered(shares: Shares, finish: Finish) -> Iterator[Row]:
    """What all processes have judged, as rows of a single one."""
    for name, image, entry, overlay in shares.gathered():
        yield name, finish(image, shares.result(entry, overlay)), f"{OVERLAYS}/{overlay}"


def _judged(
    judge: Judge, images: list[Path], videos: list[str], arguments: argparse.Namespace, finish: Finish
) -> Iterator[Row]:
    """Judge pictures, then videos; what is wrong with the options raises ValueError at once."""
    used: set[str] = set()
    pictures = _rows(judge, [str(image) for image in images], images, unique_names(images, used), finish)
    return chain(pictures, *(_judged_frames(judge, video, arguments, used, finish) for video in videos))


def _judged_frames(
    judge: Judge, video: str, arguments: argparse.Namespace, used: set[str], finish: Finish
) -> Iterator[Row]:
    """Judge a video, a batch of frames at a time; one that cannot be read is an error."""
    frames = read_frames(video, arguments.every)
    try:
        while batch := list(islice(frames, arguments.batch_size)):
            names = [frame.name for frame in batch]
            files = unique_names(map(frame_file, names), used)
            yield from _rows(judge, names, [frame.picture for frame in batch], files, finish)
    except ValueError as error:
        yield video, {"error": str(error)}, ""


def _rows(
    judge: Judge, names: Sequence[str], pictures: Sequence[ImageInput], files: Iterator[str], finish: Finish
) -> Iterator[Row]:
    overlays = (f"{OVERLAYS}/{file}" for file in files)
    return zip(names, judge(pictures, names, finish), overlays, strict=True)


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse what can be seen to be wrong before anything is loaded."""
    if not Path(arguments.references).is_file():
        raise ValueError(f"--references: expected a file made by `ideal references`, got {arguments.references!r}")
    if arguments.parquet and find_spec("pyarrow") is None:
        raise ValueError("--parquet: expected pyarrow, which is not installed: pip install 'modeling-ideal[parquet]'")
