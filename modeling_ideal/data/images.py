"""Image files of a data set: sizes, masks and content hashes. Every error names the file."""

import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from ..image_inputs import open_image, unreadable
from ..masks import marked_pixels

Box = tuple[int, int, int, int]
"""A crop in pixels: left, upper, right, lower."""

_OTHER_IMAGES = (
    *(".heic", ".heif", ".hif", ".avif", ".jxl", ".jxr", ".webp", ".svg", ".exr", ".hdr", ".psb", ".xcf", ".jp2"),
    *(".dng", ".raw", ".cr2", ".cr3", ".nef", ".nrw", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw", ".x3f"),
    *(".dcm", ".nii", ".czi", ".nd2", ".lif"),
)
_ORIENTATION = 0x0112
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_QUICK = {"compress_level": 1, "compress_type": 3}  # runs alone: a quarter of the time, photographs 3 % larger
_PLAIN_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


class MaskSizeError(ValueError):
    """A mask whose size differs from that of its image."""


@functools.cache
def image_extensions() -> frozenset[str]:
    """The file extensions of every format that Pillow can open here, in lower case, with the dot."""
    return frozenset(ext for ext, name in Image.registered_extensions().items() if name in Image.OPEN)


def is_image_file(path: str) -> bool:
    """Whether Pillow can open a file, judging by its extension; letter case does not matter."""
    return os.path.splitext(path)[1].lower() in image_extensions()


def is_unreadable_image(path: str) -> bool:
    """Whether a file holds an image, judging by its extension, that Pillow cannot open here: a HEIC, a raw file."""
    return not is_image_file(path) and os.path.splitext(path)[1].lower() in _OTHER_IMAGES


def skipped_images(files: Iterable[str]) -> str | None:
    """A sentence on the images among `files` that Pillow cannot open here, and are skipped; None if there are none."""
    skipped = [file for file in files if is_unreadable_image(file)]
    if not skipped:
        return None
    extensions = sorted({os.path.splitext(file)[1].lower() for file in skipped})
    count = "1 image" if len(skipped) == 1 else f"{len(skipped)} images"
    return (
        f"{count} skipped ({skipped[0]}{', ...' if len(skipped) > 1 else ''}): Pillow opens no "
        f"{', '.join(extensions)} files here; convert them to PNG"
    )


def image_size(path: str | Path) -> tuple[int, int]:
    """Read the (width, height) of the upright picture from the header of its file."""
    try:
        with Image.open(path) as image:
            width, height = image.size
            sideways = image.getexif().get(_ORIENTATION) in _SIDEWAYS
    except Exception as error:
        raise unreadable(path, error) from error
    return (height, width) if sideways else (width, height)


def read_masks(paths: Sequence[str | Path], size: tuple[int, int]) -> np.ndarray:
    """Read the union of several mask files of `size` (width, height): bool (height, width)."""
    union = np.zeros((size[1], size[0]), dtype=bool)
    for path in paths:
        mask = open_image(path)
        if mask.size != size:
            raise MaskSizeError(
                f"{path}: expected a mask of its image's size {size[0]} x {size[1]}, "
                f"got {mask.size[0]} x {mask.size[1]}"
            )
        union |= marked_pixels(mask, str(path))
    return union


def png_bytes(image: Image.Image) -> bytes:
    """Encode a picture as the bytes of a PNG file."""
    buffer = BytesIO()
    image.save(buffer, format="PNG", **_QUICK)
    return buffer.getvalue()


def content_hash(image: Image.Image) -> str:
    """Hash the pixels of a picture: 32 hexadecimal digits, the same in any lossless file format."""
    # Deeper pixels and other colour spaces would lose information in RGBA, so they are hashed as they are.
    pixels = image.convert("RGBA") if image.mode in _PLAIN_MODES else image
    digest = hashlib.blake2b(f"{pixels.mode} {pixels.size}".encode(), digest_size=16)
    digest.update(pixels.tobytes())
    return digest.hexdigest()
