"""Which pictures a command line means, which mask belongs to which picture, and what the outputs are called."""

import glob
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..data.folder import list_folder
from ..data.images import is_image_file

MASK_SUFFIX = "_mask"


def find_images(patterns: Sequence[str]) -> list[Path]:
    """The files that files, folders (with all below them) and globs name, in that order, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            files = pictures_below(pattern, "IMAGES")
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
    masks = pictures_below(folder, "--masks")
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


def pictures_below(folder: str | None, name: str) -> list[Path]:
    """All pictures below the folder that the argument `name` gives; none without a folder."""
    if folder is None:
        return []
    files = [Path(folder) / file for file in list_folder(folder).files if is_image_file(file)]
    if not files:
        raise ValueError(f"{name}: expected a folder of pictures, got none below {folder!r}")
    return files


def types_by_folder(images: Sequence[Path], root: str) -> list[str]:
    """The sub-folder of `root` that each image lies in, which names its type of defect."""
    types = [image.relative_to(root).parent.as_posix() for image in images]
    if not types or "." in types:
        raise ValueError(f"--types: expected every picture of --abnormal in a sub-folder of its type, got {root!r}")
    return types


def unique_names(images: Iterable[Path]) -> Iterator[str]:
    """A PNG name for each image; a number keeps those apart that are called alike."""
    used: set[str] = set()
    for image in images:
        name, number = f"{image.stem}.png", 1
        while name in used:
            number += 1
            name = f"{image.stem}_{number}.png"
        used.add(name)
        yield name
