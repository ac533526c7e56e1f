"""All layouts, of published data sets and of the user's own folder, and the scan of a folder by one of them.

A new layout is added to the dictionary of its family: `tree_layouts` if folders alone say what an image is,
`table_layouts` if a table does, `strip_layouts` if images are cut into tiles.
"""

import logging
from pathlib import Path

from .folder import Entry, Layout, Listing, Problem, Scan, list_folder, unreadable_images
from .images import skipped_images
from .strip_layouts import STRIP_LAYOUTS
from .table_layouts import TABLE_LAYOUTS, read_metadata, recognises_metadata
from .tree_layouts import OWN_FOLDER, TREE_LAYOUTS

logger = logging.getLogger(__name__)


def _recognises_own_folder(listing: Listing) -> bool:
    return recognises_metadata(listing) or OWN_FOLDER.recognises(listing)


def _read_own_folder(listing: Listing, valid_as: str | None) -> tuple[list[Entry], list[Problem]]:
    return read_metadata(listing) if recognises_metadata(listing) else OWN_FOLDER.read(listing, valid_as)


# `auto` takes the first layout that recognises the folder, so the more specific ones come first.
LAYOUTS: dict[str, Layout] = {
    **TABLE_LAYOUTS,
    **STRIP_LAYOUTS,
    **TREE_LAYOUTS,
    "folder": Layout(
        "[CATEGORY/]normal/, abnormal/[TYPE/], masks/[TYPE/], or metadata.jsonl or metadata.csv",
        _recognises_own_folder,
        _read_own_folder,
    ),
}


def scan(root: str | Path, layout: str = "auto", valid_as: str | None = None) -> Scan:
    """Read the entries of a folder without decoding images (except AITEX masks, which hold the labels).

    Args:
        root: the folder.
        layout: a key of `LAYOUTS`, or "auto" to recognise the layout.
        valid_as: the split, "train" or "test", that the images of a `valid` folder join; None leaves them out, with
            a note, because published results are on the test images alone.
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
    known = {problem.path for problem in problems}.union(*({entry.file, *entry.masks} for entry in entries))
    problems += [problem for problem in unreadable_images(listing) if problem.path not in known]
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
    if not top:
        return "the folder is empty"
    skipped = skipped_images(listing.files)
    return f"the folder holds {len(listing.files)} files under {shown}" + (f"; {skipped}" if skipped else "")


def _mask_problems(entries: list[Entry], layout: str) -> list[Problem]:
    """An error for each missing mask; in the user's own folder a whole category may have no masks."""
    problems = []
    for category in sorted({entry.category for entry in entries}):
        anomalous = [entry for entry in entries if entry.category == category and entry.label]
        missing = [entry.path for entry in anomalous if not entry.masks]
        if layout == "folder" and missing and len(missing) == len(anomalous):
            message = f"{category}: none of its {len(missing)} anomalous images has a mask"
            problems.append(Problem("note", "no masks", category, message))
        else:
            problems += [
                Problem("error", "missing mask", path, f"{path} is anomalous but has no mask") for path in missing
            ]
    return problems
