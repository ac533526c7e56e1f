"""Layouts in which the folders alone say what an image is: patterns for each data set, one reader for all."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from re import Match

from .folder import NORMAL, Entry, Layout, Listing, Problem, mask_without_image, query_images, unused_images
from .images import is_image_file

_CATEGORY = r"(?:(?P<category>[^/]+)/)?"
_NAME = r"/(?P<name>[^/]+)"


@dataclass(frozen=True)
class Tree:
    """Regular expressions for paths below the root, without extension; letter case does not matter.

    The root is one category or has a folder for each. The groups of an image pattern are `split`, `type` and
    `name`; a mask belongs to the image with the same values for the groups that its own pattern has. Without a
    `split`, normal images are for training and anomalous ones for testing; without a `type`, an anomalous
    image has the type "anomalous".
    """

    images: tuple[str, ...]
    masks: str
    normal: str
    """The `type` that means normal."""
    signature: str
    """A file that matches this pattern identifies the layout."""
    parts: tuple[str, ...]
    """The sub-folders of a category; a folder with any of them is a category even if it has no images."""
    queries_elsewhere: bool = False
    """Whether there may be unlabelled images, for inspection, anywhere else in the folder."""

    def recognises(self, listing: Listing) -> bool:
        """Whether some image matches the signature of this layout."""
        return any(is_image_file(file) and _match(self.signature, file) for file in listing.files)

    def read(self, listing: Listing, valid_as: str | None) -> tuple[list[Entry], list[Problem]]:
        """Read the entries and the problems of a folder; `valid_as` is the split that validation images join."""
        masks = _Masks(self.masks, listing)
        entries: list[Entry] = []
        problems: list[Problem] = []
        matches = {file: match for file in listing.files if (match := self._match_image(file))}
        left_out: Counter[str] = Counter()
        for file, match in matches.items():
            if not is_image_file(file):
                message = f"{file} is among the images, but Pillow reads no image with its extension"
                problems.append(Problem("warning", "left out", file, message))
                continue
            category = match["category"] or listing.name
            normal = self._is_normal(match)
            claimed = masks.claim(file, match, untyped=not normal)
            split = self._split(match, valid_as)
            if split is None:
                left_out[category] += 1
            else:
                anomaly_type = NORMAL if normal else _group(match, "type") or "anomalous"
                entries.append(Entry(file, category, anomaly_type, split, claimed))
        for category, count in left_out.items():
            message = f"{category}: {count} images of valid/ left out; valid_as='test' (or 'train') includes them"
            problems.append(Problem("note", "validation images", category, message))
        problems += masks.problems()
        problems += self._empty_categories(listing, entries)
        unused = query_images if self.queries_elsewhere else unused_images
        problems += unused(listing, {*matches, *masks.files})
        return entries, problems

    def _match_image(self, file: str) -> Match[str] | None:
        return next(filter(None, (_match(pattern, file) for pattern in self.images)), None)

    def _is_normal(self, match: Match[str]) -> bool:
        return _group(match, "type").lower() == self.normal

    def _split(self, match: Match[str], valid_as: str | None) -> str | None:
        split = _group(match, "split").lower() or ("train" if self._is_normal(match) else "test")
        return valid_as if split == "valid" else split

    def _empty_categories(self, listing: Listing, entries: list[Entry]) -> Iterator[Problem]:
        """Yield an error for each category folder without any image."""
        if any(folder.lower() in self.parts for folder in listing.folders):
            return  # the root itself is the category
        inside = (folder.split("/") for folder in listing.folders if "/" in folder)
        shaped = {top for top, part, *_ in inside if part.lower() in self.parts}
        bare = {folder for folder in listing.folders if "/" not in folder} - {
            file.split("/")[0] for file in listing.files
        }
        for category in sorted((shaped | bare) - {entry.category for entry in entries}):
            message = f"category {category!r} is empty: expected images in {category}/, found 0"
            yield Problem("error", "empty category", category, message)


class _Masks:
    """The mask files of a folder, indexed by the groups of their paths, and the images that they belong to."""

    def __init__(self, pattern: str, listing: Listing) -> None:
        self._groups = [group for group in ("split", "type") if f"?P<{group}>" in pattern]
        self._by_key: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._claims: dict[str, list[str]] = {}
        for file in listing.files:
            match = _match(pattern, file)
            if match and is_image_file(file):
                self._claims[file] = []
                # A mask has the name of its image, usually with "_mask" appended; an image may itself be "a_mask".
                for name in {match["name"], re.sub(r"(?i)_mask[_-]?\d*$", "", match["name"])}:
                    self._by_key[self._key(match, name)].append(file)

    @property
    def files(self) -> list[str]:
        """Every mask file."""
        return list(self._claims)

    def _key(self, match: Match[str], name: str, without: str = "") -> tuple[str, ...]:
        groups = ("" if group == without else _group(match, group) for group in ("category", *self._groups))
        return tuple(text.lower() for text in (*groups, name))

    def claim(self, image: str, match: Match[str], untyped: bool) -> tuple[str, ...]:
        """The mask files of an image; with `untyped`, also those beside the folders of the types."""
        files = self._by_key.get(self._key(match, match["name"]), [])
        if not files and untyped:
            files = self._by_key.get(self._key(match, match["name"], without="type"), [])
        for file in files:
            self._claims[file].append(image)
        return tuple(files)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for each mask that matches no image or several."""
        for file, images in self._claims.items():
            if not images:
                yield mask_without_image(file)
            elif len(images) > 1:
                message = f"{file} could be the mask of any of {', '.join(images)}: expected one image"
                yield Problem("error", "ambiguous mask", file, message)


def _match(pattern: str, file: str) -> Match[str] | None:
    return re.fullmatch(_CATEGORY + pattern, os.path.splitext(file)[0], flags=re.IGNORECASE)


def _group(match: Match[str], group: str) -> str:
    """The text of a group; "" if the pattern or the path does not have it."""
    return match.groupdict().get(group) or ""


_SPLIT_AND_TYPE = r"(?P<split>train|test)/(?P<type>[^/]+)"

MVTEC = Tree(
    images=(_SPLIT_AND_TYPE + _NAME,),
    masks=r"ground_truth/(?P<type>[^/]+)" + _NAME,
    normal="good",
    signature=r"train/good" + _NAME,
    parts=("train", "test", "ground_truth"),
)

BTAD = Tree(
    images=(r"(?P<split>train|test)/(?P<type>ok|ko)" + _NAME,),
    masks=r"ground_truth/(?P<type>ok|ko)" + _NAME,
    normal="ok",
    signature=r"train/ok" + _NAME,
    parts=("train", "test", "ground_truth"),
)

BMAD = Tree(
    images=(r"(?P<split>train|valid|test)/(?P<type>good|ungood)(?:/img)?" + _NAME,),
    masks=r"(?P<split>train|valid|test)/(?P<type>good|ungood)/label" + _NAME,
    normal="good",
    signature=r"(?:train/good/img|(?:valid|test)/ungood(?:/img)?)" + _NAME,
    parts=("train", "valid", "test"),
)

# A sub-folder of abnormal/ never makes its images normal, whatever its name.
OWN_FOLDER = Tree(
    images=(
        r"(?P<type>normal)(?:/.+)?" + _NAME,
        r"abnormal(?:/(?P<type>(?!(?:normal|good)/)[^/]+))?(?:/.+)?" + _NAME,
    ),
    masks=r"masks(?:/abnormal)?(?:/(?P<type>[^/]+))?" + _NAME,
    normal="normal",
    signature=r"(?:normal|abnormal)/.+",
    parts=("normal", "abnormal"),
    queries_elsewhere=True,
)

# In the order in which they are tried: a BMAD folder can look like one of MVTec AD.
TREE_LAYOUTS = {
    "bmad": Layout(
        "[CATEGORY/]train/good/img, valid and test with good/img, Ungood/img, Ungood/label",
        BMAD.recognises,
        BMAD.read,
    ),
    "btad": Layout("[CATEGORY/]train/ok, test/ok, test/ko, ground_truth/ko", BTAD.recognises, BTAD.read),
    "mvtec": Layout("[CATEGORY/]train/good, test/TYPE, ground_truth/TYPE/NAME_mask.png", MVTEC.recognises, MVTEC.read),
}
