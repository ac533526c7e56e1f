"""The layouts of the published data sets and of a user's own folder: one table entry each."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .folder import Entry, Listing, Problem, Scan, list_folder
from .strips import read_aitex, recognises_aitex
from .tables import read_metadata, read_visa, recognises_metadata, recognises_visa
from .trees import BMAD, BTAD, MVTEC, OWN_FOLDER

logger = logging.getLogger(__name__)

Reading = tuple[list[Entry], list[Problem]]


@dataclass(frozen=True)
class Layout:
    """How a data set is laid out: what a user should see, how it is recognised, how it is read."""

    expects: str
    recognises: Callable[[Listing], bool]
    read: Callable[[Listing, str | None], Reading]
    """Of a listing and the split that validation images join (None leaves them out)."""


def _recognises_own_folder(listing: Listing) -> bool:
    return recognises_metadata(listing) or OWN_FOLDER.recognises(listing)


def _read_own_folder(listing: Listing, valid_as: str | None) -> Reading:
    return read_metadata(listing) if recognises_metadata(listing) else OWN_FOLDER.read(listing, valid_as)


# `auto` takes the first that recognises the folder, so a layout stands before those it could be taken for.
LAYOUTS: dict[str, Layout] = {
    "visa": Layout(
        "split_csv/1cls.csv with the columns object, split, label, image, mask",
        recognises_visa,
        lambda listing, valid_as: read_visa(listing),
    ),
    "aitex": Layout(
        "Defect_images/NNNN_DDD_FF.png, Mask_images/NNNN_DDD_FF_mask.png, NODefect_images/FABRIC/",
        recognises_aitex,
        lambda listing, valid_as: read_aitex(listing),
    ),
    "bmad": Layout(
        "[CATEGORY/]train/good/img, valid and test with good/img, Ungood/img, Ungood/label",
        BMAD.recognises,
        BMAD.read,
    ),
    "btad": Layout("[CATEGORY/]train/ok, test/ok, test/ko, ground_truth/ko", BTAD.recognises, BTAD.read),
    "mvtec": Layout("[CATEGORY/]train/good, test/TYPE, ground_truth/TYPE/NAME_mask.png", MVTEC.recognises, MVTEC.read),
    "folder": Layout(
        "[CATEGORY/]normal/, abnormal/[TYPE/], masks/[TYPE/], or metadata.jsonl or metadata.csv",
        _recognises_own_folder,
        _read_own_folder,
    ),
}


def scan(root: str | Path, layout: str = "auto", valid_as: str | None = None) -> Scan:
    """Read a folder by a layout, decoding no image (AITEX aside, whose labels are in the masks).

    `layout` is a key of `LAYOUTS` or "auto". `valid_as`, "train" or "test", is the split that the images of a
    `valid` folder join; with None they are left out and a note says so, because a published result counts
    the test images alone. What else is wrong or left out is in the `problems` of the scan.
    """
    if layout != "auto" and layout not in LAYOUTS:
        raise ValueError(f"expected a layout among auto, {', '.join(LAYOUTS)}, got {layout!r}")
    if valid_as not in (None, "train", "test"):
        raise ValueError(f"expected valid_as to be 'train', 'test' or None, got {valid_as!r}")
    listing = list_folder(root)
    if layout == "auto":
        layout = _recognise(listing)
        logger.info("%s: recognised the layout %r (%s)", root, layout, LAYOUTS[layout].expects)
    entries, problems = LAYOUTS[layout].read(listing, valid_as)
    if not entries and not any(problem.severity == "error" for problem in problems):
        raise ValueError(
            f"{root}: expected images in the layout {layout!r} ({LAYOUTS[layout].expects}), "
            f"found none; {_summary(listing)}"
        )
    entries.sort(key=lambda entry: (entry.file, entry.box or ()))
    return Scan(listing.root, layout, tuple(entries), (*problems, *_mask_problems(entries, layout)))


def _recognise(listing: Listing) -> str:
    for name, layout in LAYOUTS.items():
        if layout.recognises(listing):
            return name
    expected = "; ".join(f"{name}: {layout.expects}" for name, layout in LAYOUTS.items())
    raise ValueError(f"{listing.root}: no layout recognised; {_summary(listing)}; expected one of: {expected}")


def _summary(listing: Listing) -> str:
    top = sorted({path.split("/")[0] for path in (*listing.folders, *listing.files)})
    shown = ", ".join(top[:8]) + (", ..." if len(top) > 8 else "")
    return f"the folder holds {len(listing.files)} files under {shown}" if top else "the folder is empty"


def _mask_problems(entries: list[Entry], layout: str) -> list[Problem]:
    """An error for each missing mask; one's own folder may do without any in a whole category."""
    problems = []
    for category in sorted({entry.category for entry in entries}):
        anomalous = [entry for entry in entries if entry.category == category and entry.label]
        missing = [entry.path for entry in anomalous if not entry.masks]
        if layout == "folder" and missing and len(missing) == len(anomalous):
            message = f"{category}: no masks; its {len(missing)} anomalous images have the mask None"
            problems.append(Problem("note", "no masks", category, message))
        else:
            problems += [
                Problem("error", "missing mask", path, f"{path} is anomalous but has no mask") for path in missing
            ]
    return problems
