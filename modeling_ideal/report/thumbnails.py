"""Small pictures inside a page, and how many of them it may hold."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np
from PIL import Image

SIDE = 240  # pixels of the longer side
QUALITY = 72
MOST_SHOWN = 300  # pictures with thumbnails in a page, about 20 kB each


@dataclass(frozen=True)
class Thumbnails:
    """A picture and its overlay in small, as data addresses, and the (width, height) of the picture itself.

    The original is None if it can no longer be read.
    """

    original: str | None
    overlay: str | None
    size: tuple[int, int]

    def addresses(self) -> Iterator[tuple[str, str]]:
        """What there is, each with its name."""
        if self.original is not None:
            yield "original", self.original
        if self.overlay is not None:
            yield "overlay", self.overlay


def make_thumbnails(
    picture: Image.Image | np.ndarray | None, overlay: Image.Image | None, side: int = SIDE
) -> Thumbnails:
    """Make the thumbnails of a picture, as an image or array (H, W, 3), uint8 or float in 0..1, and its overlay.

    Their sides are at most `side`.
    """
    if isinstance(picture, np.ndarray):
        values = picture if picture.dtype == np.uint8 else np.rint(picture.clip(0, 1) * 255).astype(np.uint8)
        picture = Image.fromarray(values)
    shown = picture or overlay
    size = (0, 0) if shown is None else shown.size
    addresses = [None if image is None else _data_address(image, side) for image in (picture, overlay)]
    return Thumbnails(addresses[0], addresses[1], size)


def _data_address(picture: Image.Image, side: int) -> str:
    small = picture.convert("RGB")
    # Whole blocks of pixels become one first, which takes less than half the time.
    small.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=1)
    buffer = BytesIO()
    small.save(buffer, format="JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


@dataclass
class HighestPictures:
    """The thumbnails of the pictures with the highest scores, by a name of each, and of no more."""

    most: int = MOST_SHOWN
    kept: dict[str, Thumbnails] = field(default_factory=dict)
    _scores: dict[str, float] = field(default_factory=dict)

    def wants(self, score: float) -> bool:
        """Whether a picture with this score would be kept; once it would not be, it never will."""
        scores = tuple(self._scores.values())  # at once, since another thread may be adding
        return len(scores) < self.most or score > min(scores)

    def add(self, name: str, score: float, thumbnails: Thumbnails) -> None:
        """Keep a picture, in the place of the lowest one if there are too many."""
        self.kept[name], self._scores[name] = thumbnails, score
        if len(self.kept) > self.most:
            lowest = min(self._scores, key=self._scores.__getitem__)
            del self.kept[lowest], self._scores[lowest]
