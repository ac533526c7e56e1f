"""What a sample is: something that may be meant as a picture, and what may come of it."""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

JUDGED, REFUSED, EITHER = "judged", "refused", "either"
SIZE = (30, 40)  # height and width of the pictures


@dataclass(frozen=True)
class Sample:
    """A value, and what may come of it.

    Args:
        value: what is given in the place of a picture.
        fate: whether it must be judged, must be refused, or may be either.
        shown: the picture (H, W, 3) that it shows, if that is known: once judged, it must score like this one.
    """

    value: Any
    fate: str
    shown: np.ndarray | None = None


def smooth(random: np.random.Generator, channels: int = 3) -> np.ndarray:
    """A smooth picture (30, 40, channels) of random colours."""
    values = random.integers(0, 256, (3, 4, channels), dtype=np.uint8)
    planes = [Image.fromarray(values[..., channel]) for channel in range(channels)]
    return np.stack([np.asarray(plane.resize(SIZE[::-1], Image.Resampling.BICUBIC)) for plane in planes], -1)


def encoded(pixels: np.ndarray | Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def decoded(content: bytes) -> np.ndarray:
    """What an intact image file shows, (H, W, 3)."""
    return np.asarray(Image.open(BytesIO(content)).convert("RGB"))


def one_of(random: np.random.Generator, choices: Any) -> Any:
    """One of several values, which NumPy would make an array of."""
    return choices[int(random.integers(len(choices)))]
