"""The files of a command line: images, their masks and types, and the names of outputs."""

import argparse
import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..data.folder import check_source, list_folder
from ..data.images import is_image_file, skipped_images
from ..writing.places import list_name

MASK_SUFFIX = "_mask"
OVERLAYS = "overlays"  # folder of the overlays in the output of `ideal detect`
LONGEST_STEM = 200  # bytes, of the 255 that file systems allow for a name


def find_images(patterns: Sequence[str]) -> list[Path]:
    """Find the images that files, folders (including sub-folders) and globs name, in this order, each once.

    Overlays that `ideal detect` or `ideal watch` wrote are passed over in folders and globs, so that no run
    judges those of another.
    """
    found: dict[str, Path] = {}
    for pattern in patterns:
        path = Path(pattern).expanduser()
        if path.is_dir():
            files = [file for file in images_below(pattern, "IMAGES") if not _is_result(file)]
        elif path.exists() or not glob.has_magic(pattern):
            files = [path]  # if it does not exist, its result is an error
        else:
            files = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
            files = [file for file in files if file.is_file() and not _is_result(file)]
        if not files:
            raise ValueError(f"IMAGES: expected images, got none at {pattern!r}")
        for file in files:
            found.setdefault(os.path.abspath(file), file)
    return list(found.values())


def _is_result(file: Path) -> bool:
    """Whether a file is an overlay that `ideal detect` or `ideal watch` wrote."""
    lists = (file.parent.parent / list_name(command) for command in ("detect", "watch"))
    return file.parent.name == OVERLAYS and any(written.exists() for written in lists)


class Pictures(NamedTuple):
    """The pictures that the arguments of `ideal references` name; None for what is not given."""

    normal: list[Path] | None
    abnormal: list[Path] | None
    masks: list[Path] | None
    types: list[str] | None


def given_pictures(arguments: argparse.Namespace) -> Pictures:
    """Find the pictures at --normal and --abnormal, folders or single files, their --masks and --types."""
    normal, abnormal = (pictures_at(getattr(arguments, kind), f"--{kind}") for kind in ("normal", "abnormal"))
    if not normal and not abnormal:
        raise ValueError("expected --normal DIR, --abnormal DIR or both, got neither")
    if arguments.masks and not abnormal:
        raise ValueError("--masks: expected --abnormal with them, got none")
    masks = _masks_of(abnormal, arguments.abnormal, arguments.masks) if arguments.masks else None
    types = types_by_folder(abnormal, arguments.abnormal) if arguments.types else None
    return Pictures(normal or None, abnormal or None, masks, types)


def _masks_of(abnormal: Sequence[Path], root: str, masks: str) -> list[Path]:
    """The masks of images at `root`, a folder or a single file, in a folder or a single file."""
    if not _is_file(masks):
        return match_masks(abnormal, str(abnormal[0].parent) if _is_file(root) else root, masks)
    if len(abnormal) != 1:
        raise ValueError(f"--masks: expected a folder for {len(abnormal)} abnormal images, got the file {masks!r}")
    return [_expanded(masks)]


def pictures_at(place: str | None, name: str) -> list[Path]:
    """The picture in a file, or all below a folder, given by the command-line argument `name`; none if it is None."""
    return [_expanded(place)] if place is not None and _is_file(place) else images_below(place, name)


def _is_file(place: str | None) -> bool:
    return place is not None and _expanded(place).is_file()


def match_masks(images: Sequence[Path], root: str, folder: str) -> list[Path]:
    """Find the mask of each image below `root`: a file of the same name, with or without `_mask`.

    Masks in the same sub-folder are preferred to masks elsewhere. Raises ValueError naming every image with no mask or
    several.
    """
    masks = images_below(folder, "--masks")
    by_place = {(path.relative_to(_expanded(folder)).parent, path.stem): path for path in masks}
    matched, problems = [], []
    for image in images:
        stems = (image.stem, image.stem + MASK_SUFFIX)
        beside = [by_place.get((image.relative_to(_expanded(root)).parent, stem)) for stem in stems]
        candidates = [path for path in beside if path] or [path for path in masks if path.stem in stems]
        if len(candidates) != 1:
            problems.append(f"{image} ({len(candidates) or 'none'})")
        matched += candidates[:1]
    if problems:
        raise ValueError(
            f"--masks: expected in {folder!r} one mask, NAME or NAME{MASK_SUFFIX}, for each abnormal image, "
            f"got another number for {', '.join(problems)}; without --masks the model finds the defects itself"
        )
    return matched


def images_below(folder: str | None, name: str) -> list[Path]:
    """Find all images below a folder, given by the command-line argument `name`; none if it is None.

    Images that Pillow cannot open are skipped, and standard error says so.
    """
    if folder is None:
        return []
    listing = list_folder(check_source(folder, name))
    files = [listing.root / file for file in listing.files if is_image_file(file)]
    skipped = skipped_images(listing.files)
    if not files:
        also = f"; {skipped}" if skipped else ""
        raise ValueError(f"{name}: expected a folder of images, got none below {folder!r}{also}")
    if skipped:
        print(f"ideal: {name}: {skipped}", file=sys.stderr)
    return files


def _expanded(folder: str) -> Path:
    return Path(folder).expanduser()  # as the listing of a folder has it


def types_by_folder(images: Sequence[Path], root: str) -> list[str]:
    """The type of the defect in each image: its sub-folder of `root`, or the folder of a single file."""
    if _is_file(root):
        return [image.absolute().parent.name for image in images]
    types = [image.relative_to(_expanded(root)).parent.as_posix() for image in images]
    if not types or "." in types:
        raise ValueError(f"--types: expected every image of --abnormal in a sub-folder of its type, got {root!r}")
    return types


def unique_names(images: Iterable[Path], used: set[str] | None = None) -> Iterator[str]:
    """Yield a PNG name for each image, with a number appended to repeated names, in capitals or not.

    Args:
        images: the images, read one by one.
        used: names that were given before, to which these are added.
    """
    used = set() if used is None else used
    for image in images:
        stem = os.fsdecode(os.fsencode(image.stem)[:LONGEST_STEM])
        name, number = f"{stem}.png", 1
        while name.casefold() in used:
            number += 1
            name = f"{stem}_{number}.png"
        used.add(name.casefold())
        yield name
