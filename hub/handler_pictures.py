"""Pictures of a request to the endpoint's handler, and the answer's: base64 to files, files to pictures, and back."""

import base64
import binascii
import io
import math
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
from PIL import Image, ImageOps

MOST_BYTES = 20_000_000  # of a picture's file
MOST_REFERENCE_BYTES = 64_000_000  # of a file of encoded references
MOST_BYTES_IN_ALL = 100_000_000  # of a request
MOST_PIXELS = 25_000_000
MOST_PIXELS_IN_ALL = 100_000_000
MOST_RATIO = 20  # of the longer side to the shorter
SECONDS = 20  # to fetch all pictures of a request
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
TILE_SIDES = (322, 323)  # of a TIFF file; libtiff takes memory for a whole tile, however small the picture is
ADDRESSES = ("http://", "https://")
FETCH = "IDEAL_FETCH_ADDRESSES"

Fetch = Callable[[str, str, int, float], bytes]  # address, name for error messages, most bytes, deadline


class PictureReader:
    """Reads the pictures of one request, and keeps to the limits of it.

    Args:
        fetch: fetches an address; None refuses addresses.
    """

    def __init__(self, fetch: Fetch | None = None) -> None:
        self.fetch = fetch
        self.deadline = monotonic() + SECONDS
        self.num_bytes = self.num_pixels = 0

    def content(self, text: str, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        """The bytes of a file that is given as base64, as a data: URL or by its address.

        Args:
            text: the file.
            name: what to call it in error messages.
            most_bytes: the largest number of bytes to accept.
        """
        most_bytes = min(most_bytes, MOST_BYTES_IN_ALL - self.num_bytes)
        content = (
            self._fetched(text, name, most_bytes) if text.startswith(ADDRESSES) else _decoded(text, name, most_bytes)
        )
        self.num_bytes += len(content)
        return content

    def picture(self, content: bytes, name: str) -> Image.Image:
        """Decode an image file, upright; whatever is wrong with it raises ValueError."""
        try:
            picture = Image.open(io.BytesIO(content), formats=FORMATS)  # reads the header alone
            tile = [getattr(picture, "tag_v2", {}).get(tag, 0) for tag in TILE_SIDES]
            num_pixels = max(math.prod(picture.size), math.prod(tile))
        except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
            raise _unreadable(content, error, name) from error
        self._check(picture, num_pixels, name)
        self.num_pixels += num_pixels
        try:
            if picture.format == "PNG":
                Image.open(io.BytesIO(content), formats=FORMATS).verify()  # the checksums, which decoding passes over
            picture.load()
            ImageOps.exif_transpose(picture, in_place=True)
        except Exception as error:
            raise _unreadable(content, error, name) from error
        return picture

    def _fetched(self, address: str, name: str, most_bytes: int) -> bytes:
        if self.fetch is None:
            raise ValueError(
                f"{name}: expected base64 or a data: URL, got an address, which this endpoint does not fetch; with "
                f"the environment variable {FETCH}=1 it fetches public addresses"
            )
        return self.fetch(address, name, most_bytes, self.deadline)

    def _check(self, picture: Image.Image, num_pixels: int, name: str) -> None:
        size = f"{picture.width} x {picture.height}"
        if not 1 <= num_pixels <= MOST_PIXELS or max(picture.size) > MOST_RATIO * min(picture.size):
            raise ValueError(
                f"{name}: expected at most {MOST_PIXELS:,} pixels, and sides of at most {MOST_RATIO} to 1, got {size}"
            )
        if self.num_pixels + num_pixels > MOST_PIXELS_IN_ALL:
            raise ValueError(f"{name}: expected at most {MOST_PIXELS_IN_ALL:,} pixels in all pictures, got more")
        # The further pictures of MPO, the JPEG of some cameras, are previews.
        if picture.format != "MPO" and getattr(picture, "is_animated", False):
            raise ValueError(f"{name}: expected one picture, got several in a {picture.format} file")


def plain(value: Any, name: str) -> Any:
    """Convert a result for JSON, with arrays and pictures as base64-encoded PNG files; ValueError for NaN.

    Args:
        value: a result of the pipeline, or a part of one.
        name: what to call it in error messages.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value}")
    if isinstance(value, np.ndarray):
        if not np.isfinite(value).all():
            raise ValueError(f"{name}: expected finite values, got NaN or infinity")
        value = Image.fromarray(value if value.dtype == bool else (value.clip(0, 1) * 65535).round().astype(np.uint16))
    if isinstance(value, Image.Image):
        file = io.BytesIO()
        value.save(file, format="PNG")
        return base64.b64encode(file.getvalue()).decode()
    if isinstance(value, dict):
        return {key: plain(entry, key) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, name) for entry in value]
    return value


def _decoded(text: str, name: str, most_bytes: int) -> bytes:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    if len(text) > 4 * (most_bytes // 3 + 1):
        raise ValueError(f"{name}: expected at most {most_bytes:,} bytes, got about {len(text) * 3 // 4:,}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: not ASCII
        raise ValueError(f"{name}: expected base64, a data: URL or an http(s) address, got {text[:40]!r}") from error


def _unreadable(content: bytes, error: Exception, name: str) -> ValueError:
    kinds = ", ".join(FORMATS)
    return ValueError(f"{name}: expected an image file ({kinds}), got {len(content)} bytes: {type(error).__name__}")
