"""Image files as they come from damaged cards, foreign programs and people who mean harm: made, not stored."""

import struct
import zlib
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from PIL import Image

from .samples import EITHER, JUDGED, REFUSED, SIZE, Sample, decoded, encoded, one_of, smooth

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "JPEG2000", "PPM", "TGA", "ICO", "PCX", "SGI")
ORIENTATION = 0x0112
TURNS = {1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1]}
TURNS |= {5: lambda a: a.swapaxes(0, 1), 6: lambda a: np.rot90(a, -1), 8: lambda a: np.rot90(a)}
TURNS |= {7: lambda a: a[::-1, ::-1].swapaxes(0, 1)}


def png(size: tuple[int, int], depth: int, colour: int, rows: bytes, extra: bytes = b"") -> bytes:
    """A PNG file of `size` (height, width) from its parts, which need not agree."""
    header = struct.pack(">IIBBBBB", size[1], size[0], depth, colour, 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + end


def chunk(kind: bytes, content: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def tiff(size: tuple[int, int], tile: tuple[int, int], content: bytes = b"") -> bytes:
    """A grey TIFF file of one tile, compressed; `size` and `tile` are heights and widths."""
    tags = [(256, size[1]), (257, size[0]), (258, 8), (259, 8), (262, 1), (277, 1), (322, tile[1]), (323, tile[0])]
    start = 8 + 2 + 12 * (len(tags) + 2) + 4
    tags += [(324, start), (325, len(content))]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + content


def intact(random: Generator) -> Sample:
    content = encoded(smooth(random), one_of(random, FORMATS))
    return Sample(content, JUDGED, decoded(content))


def truncated(random: Generator) -> Sample:
    content = encoded(smooth(random), one_of(random, FORMATS))
    return Sample(content[: random.integers(len(content))], EITHER, decoded(content))  # the very end may be padding


def flipped_bits(random: Generator) -> Sample:
    """PNG has checksums; nobody can see a changed pixel in the other formats."""
    form = one_of(random, FORMATS)
    content = encoded(smooth(random), form)
    damaged = bytearray(content)
    for place in random.integers(len(content), size=random.integers(1, 6)):
        damaged[place] ^= 1 << int(random.integers(8))
    return Sample(bytes(damaged), EITHER, decoded(content) if form == "PNG" else None)


def appended(random: Generator) -> Sample:
    content = encoded(smooth(random), one_of(random, ("PNG", "JPEG", "GIF", "BMP")))
    return Sample(content + random.bytes(int(random.integers(1, 500))), EITHER, decoded(content))


def no_image(random: Generator) -> Sample:
    starts = (b"", b"{}", b"<html><script>alert(1)</script></html>", b"PK\x03\x04", b"%PDF-1.7\n", b"\x7fELF", b"\0")
    starts += (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF", b"II*\0", b"<svg></svg>", b"P6 ", b"P7 ")
    start = one_of(random, starts)
    return Sample(start + (random.bytes(int(random.integers(200))) if random.integers(2) else b""), EITHER)


def empty(random: Generator) -> Sample:
    side = int(random.integers(0, 9))
    return Sample(
        one_of(random, (b"", png((0, side), 8, 2, b""), png((side, 0), 8, 0, b""), encoded(smooth(random))[:33])),
        REFUSED,
    )


def bomb(random: Generator) -> Sample:
    """Small files that ask for a lot of memory."""
    side = int(random.integers(14_000, 60_000))
    text = chunk(one_of(random, (b"zTXt", b"iCCP")), b"a\0\0" + zlib.compress(bytes(20_000_000)))
    gif = (
        b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\0\0\0\0" + struct.pack("<HHB", 65535, 65535, 0)
    )
    return Sample(
        one_of(
            random,
            (
                png((side, side), 1, 0, bytes(1000)),
                png((8, 8), 8, 0, bytes(72), text),
                tiff(SIZE, (side // 16 * 16, side // 16 * 16), zlib.compress(bytes(1000))),
                tiff((side, side), (16, 16), zlib.compress(bytes(256))),
                gif + b"\x02\x01\x00\x00;",
                b"BM" + struct.pack("<IHHIIiiHHIIIIII", 0, 0, 0, 54, 40, side, -side, 1, 24, 0, 0, 0, 0, 0, 0),
            ),
        ),
        REFUSED,
    )


def other_colours(random: Generator) -> Sample:
    form, mode = one_of(
        random,
        [
            ("JPEG", "CMYK"),
            ("TIFF", "CMYK"),
            ("JPEG", "YCbCr"),
            ("TIFF", "LAB"),
            ("PNG", "RGBA"),
            ("PNG", "LA"),
            ("PNG", "P"),
            ("GIF", "P"),
            ("WEBP", "RGBA"),
            ("TIFF", "RGBX"),
            ("JPEG", "L"),
            ("PNG", "L"),
        ],
    )
    image = Image.fromarray(smooth(random))
    image = Image.fromarray(smooth(random), "LAB") if mode == "LAB" else image.convert(mode)
    content = encoded(image, form)
    return Sample(content, JUDGED, decoded(content))


def one_bit(random: Generator) -> Sample:
    bits = smooth(random, 1)[..., 0] > 127
    content = encoded(Image.fromarray(bits), one_of(random, ("PNG", "TIFF", "BMP", "GIF", "PPM")))
    return Sample(content, JUDGED, np.repeat(np.uint8(255) * bits[..., None], 3, -1))


def sixteen_bits(random: Generator) -> Sample:
    grey = smooth(random, 1)[..., 0]
    values = grey.astype(np.uint16) * 257
    content = one_of(
        random,
        (
            encoded(Image.fromarray(values)),
            encoded(Image.fromarray(values), "TIFF"),
            encoded(Image.frombytes("I;16B", SIZE[::-1], values.astype(">u2").tobytes()), "TIFF"),
            encoded(Image.fromarray(values.astype(np.int32)), "TIFF"),
            encoded(Image.fromarray((grey / np.float32(255)).astype(np.float32)), "TIFF"),
            png(SIZE, 16, 0, b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)),
        ),
    )
    return Sample(content, JUDGED, np.repeat(grey[..., None], 3, -1))


def no_numbers(random: Generator) -> Sample:
    values = smooth(random, 1)[..., 0].astype(np.float32) / 255
    values[random.integers(30), random.integers(40)] = one_of(random, (np.nan, np.inf, -np.inf, 1e30, -5))
    return Sample(encoded(Image.fromarray(values), "TIFF"), REFUSED)


def several_frames(random: Generator) -> Sample:
    first, *others = (Image.fromarray(smooth(random)) for _ in range(int(random.integers(2, 5))))
    form = one_of(random, ("GIF", "PNG", "WEBP", "TIFF"))
    return Sample(encoded(first, form, save_all=True, append_images=others), REFUSED)


def turned(random: Generator) -> Sample:
    pixels, value = smooth(random), int(one_of(random, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 65535)))
    exif = Image.Exif()
    exif[ORIENTATION] = value
    content = encoded(pixels, one_of(random, ("PNG", "TIFF", "WEBP")), exif=exif.tobytes(), lossless=True)
    return Sample(content, JUDGED, np.ascontiguousarray(TURNS.get(value, TURNS[1])(pixels)))


def odd_metadata(random: Generator) -> Sample:
    """EXIF, ICC and text that are huge or no such thing: the picture itself is intact."""
    pixels, noise = smooth(random), random.bytes(int(random.integers(60_000)))
    large, form = Image.Exif(), one_of(random, ("PNG", "JPEG", "WEBP"))
    large[0x010E] = "x" * 60_000
    options = one_of(
        random,
        (
            {"exif": b"Exif\0\0" + noise},
            {"exif": large.tobytes()},
            {"exif": large.tobytes()[: random.integers(60_000)]},
            {"exif": b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + noise},
            {"icc_profile": noise},
        ),
    )
    content = encoded(pixels, form, **options)
    return Sample(content, EITHER, decoded(content))


def programs(random: Generator) -> Sample:
    """PostScript is a program, which Pillow would hand to Ghostscript."""
    return Sample(encoded(smooth(random), "EPS") + b"\n" * int(random.integers(9)), REFUSED)


FILES: dict[str, Callable[[Generator], Sample]] = {
    make.__name__.replace("_", " "): make
    for make in (
        intact,
        truncated,
        flipped_bits,
        appended,
        no_image,
        empty,
        bomb,
        other_colours,
        one_bit,
        sixteen_bits,
        no_numbers,
        several_frames,
        turned,
        odd_metadata,
        programs,
    )
}
