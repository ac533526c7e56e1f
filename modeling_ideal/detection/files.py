"""The files of a command line: images, their masks and types, and the names of outputs."""

import glob
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..data.folder import list_folder
from ..data.images import is_image_file

MASK_SUFFIX = "_mask"


def find_images(patterns: Sequence[str]) -> list[Path]:
    """Find the images that files, folders (including sub-folders) and globs name, in this order, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            files = images_below(pattern, "IMAGES")
        elif path.exists() or not glob.has_magic(pattern):
            files = [path]  # if it does not exist, its result is an error
        else:
            files = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
        if not files:
            raise ValueError(f"IMAGES: expected images, got none at {pattern!r}")
        found |= dict.fromkeys(files)
    return list(found)


def match_masks(images: Sequence[Path], root: str, folder: str) -> list[Path]:
    """Find the mask of each image below `root`: a file of the same name, with or without `_mask`.

    Masks in the same sub-folder are preferred to masks elsewhere. Raises ValueError naming every image with no mask or
    several.
    """
    masks = images_below(folder, "--masks")
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
            f"--masks: expected in {folder!r} one mask, NAME or NAME{MASK_SUFFIX}, for each abnormal image, "
            f"got another number for {', '.join(problems)}; without --masks the model finds the defects itself"
        )
    return matched


def images_below(folder: str | None, name: str) -> list[Path]:
    """Find all images below a folder, given by the command-line argument `name`; none if it is None."""
    if folder is None:
        return []
    files = [Path(folder) / file for file in list_folder(folder).files if is_image_file(file)]
    if not files:
        raise ValueError(f"{name}: expected a folder of images, got none below {folder!r}")
    return files


def types_by_folder(images: Sequence[Path], root: str) -> list[str]:
    """The type of the defect in each image: the name of its sub-folder of `root`."""
    types = [image.relative_to(root).parent.as_posix() for image in images]
    if not types or "." in types:
        raise ValueError(f"--types: expected every image of --abnormal in a sub-folder of its type, got {root!r}")
    return types


def unique_names(images: Iterable[Path]) -> Iterator[str]:
    """Yield a PNG name for each image, with a number appended to repeated names."""
    used: set[str] = set()
    for image in images:
        name, number = f"{image.stem}.png", 1
        while name in used:
            number += 1
            name = f"{image.stem}_{number}.png"
        used.add(name)
        yield name
