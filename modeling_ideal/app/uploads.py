"""Files that people upload: what is accepted, and how a picture is read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from ..image_inputs import load_image, resize_image

MOST_REFERENCES = 40  # pictures
MOST_QUERIES = 40
MOST_BYTES = 20_000_000  # of a picture's file
MOST_PIXELS = 25_000_000
MOST_REFERENCE_BYTES = 64_000_000  # of a references file
FORMATS = ("BMP", "JPEG", "PNG", "TIFF", "WEBP")
TILE_SIDES = (322, 323)  # of a TIFF file; libtiff takes memory for a whole tile, however small the picture is
LONGEST_SIDE = 1024  # pixels of a picture and of its map that a session keeps
LIMITS = (
    f"Up to {MOST_REFERENCES} references and {MOST_QUERIES} pictures to judge, each up to {MOST_BYTES // 1_000_000} MB"
    f" and {MOST_PIXELS // 1_000_000} megapixels: PNG, JPEG, WebP, BMP or TIFF."
)


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture of a session.

    Args:
        name: the name of its file.
        file: where it is.
        size: height and width.
        shown: (h, w, 3) uint8, the picture with sides of at most `LONGEST_SIDE`.
        defective: whether it is one of a defective part; None for one to judge.
        mask: (h, w) bool, where its defect is, at the size of `shown`; None if it is not marked.
        defect_type: the type of the defect; empty if it has no name.
    """

    name: str
    file: Path
    size: tuple[int, int]
    shown: np.ndarray
    defective: bool | None = None
    mask: np.ndarray | None = None
    defect_type: str = ""

    def marked(self, mask: np.ndarray | None, defect_type: str) -> "Picture":
        """The same picture of a defective part, with this mask and type."""
        return replace(self, defective=True, mask=mask, defect_type=defect_type.strip())

    def full_mask(self) -> np.ndarray | None:
        """The mask at the size of the picture itself, bool (H, W)."""
        if self.mask is None or self.mask.shape == self.size:
            return self.mask
        return np.asarray(Image.fromarray(self.mask).resize(self.size[::-1], Image.Resampling.NEAREST))


def read_picture(file: Path, name: str, defective: bool | None = None) -> Picture:
    """Read a picture; ValueError, for a person, if it is none or too large."""
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{name}: expected at most {MOST_BYTES / 1e6:.0f} MB, got {size / 1e6:.1f} MB")
    try:
        with Image.open(file, formats=FORMATS) as opened:  # reads the header alone
            tile = [getattr(opened, "tag_v2", {}).get(tag, 0) for tag in TILE_SIDES]
            num_pixels = max(math.prod(opened.size), math.prod(tile))
    except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
        raise ValueError(f"{name}: expected a PNG, JPEG, WebP, BMP or TIFF picture, got another file") from error
    if num_pixels > MOST_PIXELS:
        raise ValueError(
            f"{name}: expected at most {MOST_PIXELS / 1e6:.0f} megapixels, got {num_pixels / 1e6:.1f} megapixels"
        )
    try:
        pixels = load_image(file, name)
    except ValueError as error:
        reason = "one of several frames" if "of several" in str(error) else "a damaged one"
        raise ValueError(f"{name}: expected a picture that can be read, got {reason}") from error
    height, width = pixels.shape[:2]
    return Picture(name, file, (height, width), reduced(pixels, LONGEST_SIDE), defective)


def reduced(pixels: np.ndarray, longest: int) -> np.ndarray:
    """A picture (H, W, 3), uint8 or float in 0..1, as uint8 with sides of at most `longest`."""
    height, width = reduced_size(pixels.shape, longest)
    if pixels.dtype == np.uint8 and (height, width) == pixels.shape[:2]:
        return pixels
    return np.rint(resize_image(pixels, (height, width)) * 255).clip(0, 255).astype(np.uint8)


def reduced_size(size: Sequence[int], longest: int) -> tuple[int, int]:
    """Height and width, reduced if one of them exceeds `longest`."""
    scale = min(1.0, longest / max(size[:2]))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def read_pictures(
    files: Sequence[Path], taken: Sequence[str], most: int, defective: bool | None = None
) -> tuple[list[Picture], list[str]]:
    """Read uploaded pictures, each alone, so that one that cannot be used does not keep out the others.

    Args:
        files: the uploaded files.
        taken: names of the pictures that are there already; equal names get a number.
        most: how many there may be in all.
        defective: see `Picture`.

    Returns:
        The pictures, and a sentence about each file that is not among them.
    """
    pictures: list[Picture] = []
    refused: list[str] = []
    names = list(taken)
    for file in files:
        if len(names) >= most:
            refused.append(f"{file.name}: expected at most {most} pictures, got more")
            continue
        try:
            name = unique_name(file.name, names)
            pictures.append(read_picture(file, name, defective))
            names.append(name)
        except ValueError as error:
            refused.append(str(error))
    return pictures, refused


def unique_name(name: str, taken: Sequence[str]) -> str:
    """The name, with a number if it is taken: part.png, part (2).png."""
    path, number, unique = Path(name), 1, name
    while unique in taken:
        number += 1
        unique = f"{path.stem} ({number}){path.suffix}"
    return unique
