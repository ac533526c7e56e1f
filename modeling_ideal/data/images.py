"""Reading pictures and masks: every error names the file, every mask comes out binary."""

import functools
import hashlib
import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

Box = tuple[int, int, int, int]
"""A crop in pixels: left, upper, right, lower."""

_ORIENTATION = 0x0112
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_LOSSY_FORMATS = ("JPEG", "MPO")
_PLAIN_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


class MaskSizeError(ValueError):
    """A mask that is not of its image's size."""


@functools.cache
def image_extensions() -> frozenset[str]:
    """The lower-case file extensions, with their dot, of every format Pillow can open here."""
    return frozenset(ext for ext, name in Image.registered_extensions().items() if name in Image.OPEN)


def is_image(path: str) -> bool:
    """Whether the name of a file says that Pillow can open it; letter case does not matter."""
    return os.path.splitext(path)[1].lower() in image_extensions()


def open_image(path: str | Path) -> Image.Image:
    """The decoded picture, upright by its EXIF tag; ValueError naming the file where it cannot be read."""
    try:
        with Image.open(path) as image:
            image.load()
            upright = ImageOps.exif_transpose(image)
            upright.format = image.format  # a copy forgets it, and `binary_mask` asks for it
            return upright
    except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
        raise unreadable(path, error) from error


def unreadable(path: str | Path, error: Exception) -> ValueError:
    """The one wording for a file that is not the image its name promises."""
    return ValueError(f"{path}: expected a readable image, got {type(error).__name__}: {error}")


def image_size(path: str | Path) -> tuple[int, int]:
    """(width, height) of the upright picture, from the header alone."""
    try:
        with Image.open(path) as image:
            width, height = image.size
            sideways = image.getexif().get(_ORIENTATION) in _SIDEWAYS
    except Exception as error:
        raise unreadable(path, error) from error
    return (height, width) if sideways else (width, height)


def binary_mask(mask: Image.Image) -> np.ndarray:
    """(height, width) of bool, True where the mask is not zero.

    Palette images count by index, as segmentation masks are stored; of colours any channel counts; what is
    fully transparent does not. JPEG is lossy and its zeros only near zero: there half of white is the limit.
    """
    pixels = np.atleast_3d(np.asarray(mask))
    above = pixels > (127 if mask.format in _LOSSY_FORMATS else 0)
    if mask.mode in ("LA", "RGBA"):
        return np.any(above[..., :-1], axis=-1) & above[..., -1]
    return np.any(above, axis=-1)


def read_masks(paths: Sequence[str | Path], size: tuple[int, int]) -> np.ndarray:
    """The union of several mask files: (height, width) of bool; each must have `size` (width, height)."""
    union = np.zeros((size[1], size[0]), dtype=bool)
    for path in paths:
        mask = open_image(path)
        if mask.size != size:
            raise MaskSizeError(
                f"{path}: expected a mask of its image's size {size[0]} x {size[1]}, "
                f"got {mask.size[0]} x {mask.size[1]}"
            )
        union |= binary_mask(mask)
    return union


def png_bytes(image: Image.Image) -> bytes:
    """The picture as the bytes of a PNG file."""
    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def content_hash(image: Image.Image) -> str:
    """32 hexadecimal digits of what the picture shows, the same for the same pixels in any file format."""
    # Depths and colour spaces beyond 8-bit RGB would lose information in RGBA: they are hashed as they are.
    pixels = image.convert("RGBA") if image.mode in _PLAIN_MODES else image
    digest = hashlib.blake2b(f"{pixels.mode} {pixels.size}".encode(), digest_size=16)
    digest.update(pixels.tobytes())
    return digest.hexdigest()
