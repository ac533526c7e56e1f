"""Arrays, tensors and objects in the place of a picture."""

from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator
from PIL import Image

from .samples import EITHER, JUDGED, REFUSED, SIZE, Sample, encoded, one_of, smooth

MODES = (
    "1",
    "L",
    "P",
    "RGB",
    "RGBA",
    "CMYK",
    "YCbCr",
    "LAB",
    "HSV",
    "I",
    "F",
    "LA",
    "PA",
    "RGBX",
    "RGBa",
    "La",
    "I;16",
)


def plain_arrays(random: Generator) -> Sample:
    """The same picture in any number type, memory order and axis order that is understood."""
    pixels = smooth(random)
    value = one_of(
        random,
        (
            pixels.astype(one_of(random, (np.int16, np.int32, np.uint32, np.int64, np.uint64, ">u4", ">i8"))),
            pixels.astype(one_of(random, (np.float32, np.float64, ">f8"))) / one_of(random, (1, 255)),
            pixels.astype(np.uint16) * np.uint16(257),
            np.asfortranarray(pixels),
            np.repeat(pixels, 2, 0)[::2],
            np.ascontiguousarray(pixels[:, ::-1])[:, ::-1],
            np.moveaxis(pixels, -1, 0),
            torch.from_numpy(pixels),
            torch.from_numpy(pixels).permute(2, 0, 1),
            torch.from_numpy(pixels).float().div(255).requires_grad_(),
            np.concatenate([pixels, np.full((*SIZE, 1), 7, np.uint8)], -1),
        ),
    )
    return Sample(value, JUDGED, pixels)


def not_finite(random: Generator) -> Sample:
    values = smooth(random).astype(one_of(random, (np.float16, np.float32, np.float64))) / 255
    values[random.integers(30), random.integers(40), random.integers(3)] = one_of(random, (np.nan, np.inf, -np.inf))
    return Sample(torch.from_numpy(values) if random.integers(2) else values, REFUSED)


def out_of_range(random: Generator) -> Sample:
    values = smooth(random).astype(one_of(random, (np.float32, np.float64, np.int32, np.int64)))
    values[random.integers(30), random.integers(40)] = one_of(random, (-1, 256, -1e9, 1e9, 70_000))
    return Sample(torch.from_numpy(values) if random.integers(2) else values, REFUSED)


def other_shapes(random: Generator) -> Sample:
    shapes = [
        (),
        (0,),
        (5,),
        (0, 0),
        (0, 40),
        (30, 0, 3),
        (0, 30, 3),
        (30, 40, 2),
        (30, 40, 5),
        (2, 2, 2, 2, 3),
        (7, 0, 7),
    ]
    value = np.zeros(one_of(random, shapes), one_of(random, (np.uint8, np.uint16, np.float32, bool)))
    return Sample(torch.from_numpy(value.astype(np.float32)) if random.integers(2) else value, REFUSED)


def other_types(random: Generator) -> Sample:
    pixels = smooth(random)
    return Sample(
        one_of(
            random,
            (
                pixels.astype(complex),
                pixels.astype(str),
                pixels.astype(object),
                pixels.astype("M8[s]"),
                np.zeros(SIZE, [("red", np.uint8), ("green", np.uint8)]),
                torch.from_numpy(pixels).to(torch.complex64),
                torch.from_numpy(pixels).float().to_sparse(),
                torch.empty(3, *SIZE, device="meta"),
                *(None, True, 3, 2.5, 1j, {}, object(), len, Image, {"path": "x.png"}, slice(3), StringIO("no bytes")),
            ),
        ),
        REFUSED,
    )


def unusual_arrays(random: Generator) -> Sample:
    """Understood or not, but never by accident."""
    pixels = smooth(random)
    return Sample(
        one_of(
            random,
            (
                np.ma.masked_array(pixels, pixels > 100),
                pixels.astype(np.float16) / np.float16(255),
                torch.from_numpy(pixels).to(torch.bfloat16) / 255,
                torch.from_numpy(pixels).to(torch.float16) / 255,
                np.full((*SIZE, 3), one_of(random, (0, 255)), np.uint8),
                np.zeros((1, 1, 3), np.uint8),
                np.zeros((3, 3, 3), np.uint8),
                np.zeros((1, 5000), np.uint8),
                np.zeros((5000, 1), np.float32),
            ),
        ),
        EITHER,
    )


def pillow_images(random: Generator) -> Sample:
    mode = one_of(random, MODES)
    size = one_of(random, (SIZE[::-1], SIZE[::-1], (1, 1), (0, 0), (0, 7)))
    noise = Image.effect_noise(size, 50) if min(size) else Image.new("L", size)
    image = Image.new(mode, size)
    if mode in ("L", "P", "RGB", "I", "F", "CMYK", "RGBA"):
        image = noise.convert(mode)
    return Sample(image, REFUSED if 0 in size else JUDGED if mode in ("L", "RGB", "RGBA", "CMYK") else EITHER)


def lazy_images(random: Generator) -> Sample:
    """Opened by the caller, read only when judged, and perhaps cut off, garbled or closed by then."""
    pixels, kind = smooth(random), int(random.integers(4))
    content = encoded(pixels)
    image = Image.open(BytesIO(content[:-200] if kind == 0 else content))
    if kind == 1:
        image.close()
    if kind == 2:
        image.info["exif"] = b"Exif\0\0" + random.bytes(99)
    return Sample(image, (REFUSED, REFUSED, EITHER, JUDGED)[kind], pixels)


def places(random: Generator) -> Sample:
    """Paths and addresses that lead nowhere."""
    names = (
        "",
        " ",
        ".",
        "/",
        "none.png",
        "a\0b.png",
        "a" * 5000,
        "/dev/null",
        "file:///none",
        "http://127.0.0.1:1/x.png",
    )
    names += ("https://", "http://[", "http://\n", "\ud800.png", "~/none.png", "-", "*.png", __file__)
    name = one_of(random, names)
    return Sample(Path(name) if random.integers(2) and "http" not in name else name, REFUSED)


def streams(random: Generator) -> Sample:
    pixels, kind = smooth(random), int(random.integers(4))
    content = encoded(pixels)
    stream = BytesIO(content)
    if kind == 1:
        stream.close()
    if kind == 2:
        stream.read(int(random.integers(len(content))))  # read from the beginning all the same
    return Sample(memoryview(content) if kind == 3 else stream, REFUSED if kind == 1 else JUDGED, pixels)


VALUES: dict[str, Callable[[Generator], Sample]] = {
    make.__name__.replace("_", " "): make
    for make in (
        plain_arrays,
        not_finite,
        out_of_range,
        other_shapes,
        other_types,
        unusual_arrays,
        pillow_images,
        lazy_images,
        places,
        streams,
    )
}
