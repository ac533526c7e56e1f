"""Check a data folder: count its images and report what is wrong with them."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from ..image_inputs import open_image
from ..writing.tables import text_table
from .folder import NORMAL, Entry, Problem, Scan
from .images import MaskSizeError, content_hash, read_masks
from .layouts import scan

SIZE_FACTOR = 2.0
"""A side of an image is odd if it is more than this many times longer or shorter than the median."""

_SHOWN_PER_KIND = 20


@dataclass(frozen=True)
class Count:
    """A row of the report: the number of images of a category, split and type, and of their masks."""

    category: str
    split: str
    anomaly_type: str
    images: int
    masks: int


@dataclass(frozen=True)
class Report:
    """The result of `check`: `problems` should be fixed, `notes` need no action."""

    root: str
    layout: str
    counts: tuple[Count, ...]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]

    def as_json(self) -> dict[str, Any]:
        """The report as a dictionary for JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as text: the table of counts, then the problems by kind."""
        images = sum(count.images for count in self.counts)
        lines = [f"{self.root}: layout {self.layout}, {images} images", "", _table(self.counts), ""]
        lines += [f"note: {note.message}" for note in self.notes]
        lines += [f"problems found: {len(self.problems)}" if self.problems else "no problems found"]
        by_kind: dict[str, list[Problem]] = defaultdict(list)
        for problem in self.problems:
            by_kind[problem.kind].append(problem)
        for kind, problems in by_kind.items():
            lines += ["", f"{kind} ({len(problems)})"]
            lines += [f"  {problem.message}" for problem in problems[:_SHOWN_PER_KIND]]
            if len(problems) > _SHOWN_PER_KIND:
                lines.append(f"  ... and {len(problems) - _SHOWN_PER_KIND} more; --json lists all")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Picture:
    """What the check compares of a decoded image file."""

    entry: Entry
    size: tuple[int, int]
    content: str


def check(root: str | Path, layout: str = "auto", progress: bool = True) -> Report:
    """Read every image and mask of a folder and report what is wrong; ValueError if no layout fits the folder."""
    scanned = scan(root, layout)
    entries = _one_entry_per_file(scanned)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        inspected = list(
            tqdm(
                pool.map(lambda entry: _inspect(scanned.root, entry), entries),
                total=len(entries),
                desc="Checking",
                unit="image",
                disable=None if progress else True,  # None shows it in a terminal only
            )
        )
    pictures = [picture for picture, _ in inspected if picture is not None]
    problems = [
        *scanned.problems,
        *(problem for _, found in inspected for problem in found),
        *_duplicates(pictures),
        *_odd_sizes(pictures),
    ]
    return Report(
        str(root),
        scanned.layout,
        tuple(_counts(scanned)),
        problems=tuple(problem for problem in problems if problem.severity != "note"),
        notes=tuple(problem for problem in problems if problem.severity == "note"),
    )


def _one_entry_per_file(scanned: Scan) -> list[Entry]:
    """One entry for each image file; for a strip with several tiles, an anomalous one if there is any."""
    chosen: dict[str, Entry] = {}
    for entry in scanned.entries:
        if entry.file not in chosen or entry.label > chosen[entry.file].label:
            chosen[entry.file] = entry
    return list(chosen.values())


def _inspect(root: Path, entry: Entry) -> tuple[_Picture | None, list[Problem]]:
    try:
        image = open_image(root / entry.file, one_frame=True)
    except ValueError as error:
        return None, [_unreadable(root, entry.file, error)]
    picture = _Picture(entry, image.size, content_hash(image))
    if not entry.masks:
        return picture, []
    try:
        anomalous = bool(read_masks([root / mask for mask in entry.masks], image.size).any())
    except ValueError as error:
        return picture, [_unreadable(root, entry.masks[0], error)]
    files = " and ".join(entry.masks)
    if entry.label and not anomalous:
        message = f"{entry.file} is anomalous but its mask {files} is empty"
        return picture, [Problem("warning", "empty mask", entry.file, message)]
    if anomalous and not entry.label:
        message = f"{entry.file} is normal but its mask {files} is not empty"
        return picture, [Problem("warning", "mask of a normal image", entry.file, message)]
    return picture, []


def _unreadable(root: Path, file: str, error: ValueError) -> Problem:
    kind = "mismatching mask" if isinstance(error, MaskSizeError) else "unreadable file"
    return Problem("error", kind, file, str(error).removeprefix(f"{root}{os.sep}"))


def _duplicates(pictures: Sequence[_Picture]) -> Iterator[Problem]:
    """Yield a problem for each picture that is in both train and test, or both normal and anomalous."""
    by_content: dict[str, list[Entry]] = defaultdict(list)
    for picture in pictures:
        by_content[picture.content].append(picture.entry)
    for same in by_content.values():
        for entry in same:
            twin = next((other for other in same if other.split == "train" != entry.split), None)
            if twin is not None:
                message = f"{entry.file} in test shows the same picture as {twin.file} in train"
                yield Problem("warning", "duplicate", entry.file, message)
            opposite = next((other for other in same if other.label < entry.label), None)
            if opposite is not None:
                message = f"{entry.file} is anomalous but shows the same picture as {opposite.file}, which is normal"
                yield Problem("warning", "contradiction", entry.file, message)


def _odd_sizes(pictures: Sequence[_Picture]) -> Iterator[Problem]:
    by_category: dict[str, list[_Picture]] = defaultdict(list)
    for picture in pictures:
        by_category[picture.entry.category].append(picture)
    for category, members in by_category.items():
        usual = tuple(median(picture.size[side] for picture in members) for side in (0, 1))
        for picture in members:
            ratios = [size / typical for size, typical in zip(picture.size, usual, strict=True)]
            if max(ratios) > SIZE_FACTOR or min(ratios) < 1 / SIZE_FACTOR:
                message = (
                    f"{picture.entry.file} has {picture.size[0]} x {picture.size[1]} pixels, "
                    f"while {category} usually has {usual[0]:g} x {usual[1]:g}"
                )
                yield Problem("warning", "odd size", picture.entry.file, message)


def _counts(scanned: Scan) -> Iterator[Count]:
    images = Counter((entry.category, entry.split, entry.anomaly_type) for entry in scanned.entries)
    masks = Counter(
        (entry.category, entry.split, entry.anomaly_type) for entry in scanned.entries if entry.label and entry.masks
    )
    for key in sorted(images):
        yield Count(*key, images=images[key], masks=masks[key])


def _table(counts: Sequence[Count]) -> str:
    rows = []
    for count in counts:
        kind = "normal" if count.anomaly_type == NORMAL else count.anomaly_type
        rows.append((count.category, count.split, kind, str(count.images), str(count.masks)))
    return text_table(("category", "split", "type", "images", "masks"), rows, words=3)
