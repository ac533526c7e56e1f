"""Layouts of long strips that are cut into square tiles: AITEX, fabrics."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from re import Match, Pattern

from .folder import NORMAL, Entry, Layout, Listing, Problem, mask_without_image, unused_images
from .images import Box, image_size, is_image_file, read_masks

TILE = 256
TEST_EVERY = 4

_CODES = r"(?P<strip>\d+_(?P<defect>\d+)_(?P<fabric>\d+))"
_DEFECTIVE = re.compile(rf"(?i)defect_images/{_CODES}")
_MASK = re.compile(rf"(?i)mask_images/{_CODES}_mask.*")
_DEFECT_FREE = re.compile(rf"(?i)nodefect_images/(?:[^/]+/)?{_CODES}")


def recognises_aitex(listing: Listing) -> bool:
    """Whether the folder has the defect-free strips or the masks of AITEX."""
    return any(True for pattern in (_DEFECT_FREE, _MASK) for _ in _matches(pattern, listing))


def read_aitex(listing: Listing) -> tuple[list[Entry], list[Problem]]:
    """Read the tiles of all strips; the category is the fabric code, the anomaly type the defect code.

    A tile of a defective strip is anomalous if any of the strip's masks marks a pixel in it, and normal otherwise;
    all of these tiles are for testing. Of the defect-free strips of a fabric, sorted by name, every fourth is for
    testing and the others are for training: the data set has no split of its own, and splitting whole strips keeps
    neighbouring tiles together.

    A defective strip without a mask is left out, with a warning, because it is not known which of its tiles are
    defective.
    """
    masks: dict[str, list[str]] = defaultdict(list)
    for file, match in _matches(_MASK, listing):
        masks[match["strip"]].append(file)
    strips = [
        (file, match, "test", tuple(masks.pop(match["strip"], ()))) for file, match in _matches(_DEFECTIVE, listing)
    ]
    strips += [(file, match, split, ()) for file, match, split in _defect_free(listing)]

    entries: list[Entry] = []
    problems: list[Problem] = []
    used: set[str] = set()
    for file, match, split, mask_files in strips:
        used.update((file, *mask_files))
        try:
            tiles = list(_tiles(listing.root, file, match, split, mask_files))
        except ValueError as error:
            problems.append(Problem("error", "unreadable file", file, str(error)))
            continue
        if int(match["defect"]) and not any(tile.label for tile in tiles):
            message = f"{file} shows a defect but its mask is missing or empty, so its tiles are left out"
            problems.append(Problem("warning", "missing mask", file, message))
        else:
            entries += tiles
    orphans = [file for files in masks.values() for file in files]
    problems += map(mask_without_image, orphans)
    return entries, [*problems, *unused_images(listing, used.union(orphans))]


def _matches(pattern: Pattern[str], listing: Listing) -> Iterator[tuple[str, Match[str]]]:
    for file in listing.files:
        match = pattern.fullmatch(os.path.splitext(file)[0])
        if match and is_image_file(file):
            yield file, match


def _defect_free(listing: Listing) -> Iterator[tuple[str, Match[str], str]]:
    """Yield (file, match, split) for each strip without a defect."""
    strips_of: Counter[str] = Counter()
    for file, match in sorted(_matches(_DEFECT_FREE, listing), key=lambda item: item[1]["strip"]):
        strips_of[match["fabric"]] += 1
        yield file, match, "train" if strips_of[match["fabric"]] % TEST_EVERY else "test"


def _tiles(root: Path, file: str, match: Match[str], split: str, masks: tuple[str, ...]) -> Iterator[Entry]:
    width, height = image_size(root / file)
    union = read_masks([root / mask for mask in masks], (width, height))
    for left, upper, right, lower in _boxes(width, height):
        anomalous = bool(union[upper:lower, left:right].any())
        yield Entry(
            file,
            category=match["fabric"],
            anomaly_type=match["defect"] if anomalous else NORMAL,
            split=split,
            masks=masks if anomalous else (),
            box=(left, upper, right, lower),
        )


def _boxes(width: int, height: int) -> Iterator[Box]:
    """Yield the tiles that cover a strip, row by row; those at the right and lower edges may be smaller."""
    for upper in range(0, height, TILE):
        for left in range(0, width, TILE):
            yield left, upper, min(left + TILE, width), min(upper + TILE, height)


STRIP_LAYOUTS = {
    "aitex": Layout(
        "Defect_images/NNNN_DDD_FF.png, Mask_images/NNNN_DDD_FF_mask.png, NODefect_images/FABRIC/",
        recognises_aitex,
        lambda listing, valid_as: read_aitex(listing),
    ),
}
