"""Montages: queries with their ground truth and the heat maps of several methods, the references on top."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ...outlines import outlined
from ...pipeline_results import Scale, heat

OUTLINE = (255, 0, 255)  # rare in photographs of parts, and not among the colours of heat
GREY = 0.5  # behind the colour bar: about the mean brightness of a photograph

# Inches.
CELL = 1.9
THUMBNAIL = 1.15
GAP = 0.12
CAPTION = 0.19
MARGIN = 0.15
HEADING = 0.32
BAR = 0.12
FOOT = 0.6
SMALL, MEDIUM, LARGE = 0.12, 0.14, 0.18  # of letters
DOTS_PER_INCH = 150

DARK_GREY = "#595959"


@dataclass(frozen=True)
class Tile:
    """A picture with its defects.

    Args:
        photograph: (H, W, 3) in 0..1.
        mask: (H, W) bool, anomalous pixels, to be outlined; None where there is none.
        caption: a few words.
    """

    photograph: np.ndarray
    mask: np.ndarray | None
    caption: str


@dataclass(frozen=True)
class MontageRow:
    """A query in a montage: the picture, and the anomaly map (H, W) and image score of each method."""

    tile: Tile
    maps: dict[str, np.ndarray]
    scores: dict[str, float]


def color_scale(maps: np.ndarray) -> Scale:
    """One scale for all maps (n, H, W) of a category and method: from their median to their highest score.

    It is not stretched image by image, or the highest pixel of a good part would be red. It differs by method, because
    some methods score in 0..1 and others by length, and few scores come near 1. Most pixels are normal, so the median
    is what normal looks like. The hot end is the maximum and not a quantile such as 99.9 %: where defects cover less
    than 0.1 %, that quantile lies among normal pixels, and good parts would be red. Maps are smooth, so the maximum
    does not depend on a single pixel.
    """
    return Scale(float(np.median(maps)), float(maps.max()))


def draw_montage(
    title: str, references: Sequence[Tile], queries: Sequence[MontageRow], scales: Mapping[str, Scale]
) -> Image.Image:
    """The references, then one row per query: photograph, ground truth, and the heat map of each method in `scales`.

    Heat maps lie over a grey photograph, since its own colours could be taken for heat. All pictures must have the
    same size.
    """
    shapes = {tile.photograph.shape for tile in (*references, *(query.tile for query in queries))}
    if len(shapes) != 1:
        raise ValueError(f"expected at least one picture, all of one size, got shapes {sorted(shapes)}")
    height, width, _ = shapes.pop()
    page = _Page(title, height / width, len(references), len(queries), max(2 + len(scales), 4))
    for place, tile in enumerate(references):
        page.thumbnail(place, tile)
    for row, query in enumerate(queries):
        page.cell(row, 0, query.tile.photograph, caption=query.tile.caption)
        page.cell(row, 1, query.tile.photograph, query.tile.mask, _defect_size(query.tile.mask))
        for column, (name, scale) in enumerate(scales.items(), start=2):
            page.heat_map(row, column, query.tile.photograph, query.maps[name], scale, query.scores[name])
    for column, name in enumerate(["query", "ground truth", *scales]):
        page.heading(column, name.replace("_", " "))
    for column, scale in enumerate(scales.values(), start=2):
        page.color_bar(column, scale)
    page.footnote(
        "Colours: from the median (none) to the highest score of all queries of the category; one scale per method."
    )
    return page.drawn()


def _defect_size(mask: np.ndarray | None) -> str:
    if mask is None:
        return "not marked"
    return f"{mask.mean():.2%} of the picture" if mask.any() else "no defect"


class Words(NamedTuple):
    """Words on a page: where they are, in dots, how large, in inches, and which side of them is there: l, m or r."""

    place: tuple[int, int]
    words: str
    size: float
    color: str
    anchor: str


class _Page:
    """Places things on a picture, in inches from its top left corner.

    Matplotlib, with axes for each of the small pictures, takes far longer.
    """

    def __init__(self, title: str, aspect: float, num_references: int, num_queries: int, columns: int) -> None:
        self.aspect = aspect
        self.width = 2 * MARGIN + columns * (CELL + GAP) - GAP
        self.thumbnails = int((self.width - 2 * MARGIN + GAP) // (THUMBNAIL + GAP))  # in a row
        rows = -(-num_references // self.thumbnails)
        self.references_top = 2 * HEADING
        self.queries_top = self.references_top + rows * (THUMBNAIL * aspect + CAPTION + GAP) + 1.25 * HEADING
        self.bars_top = self.queries_top + num_queries * (CELL * aspect + CAPTION + GAP) + GAP
        self.height = self.bars_top + BAR + FOOT
        self.canvas = np.full((_dots(self.height), _dots(self.width), 3), 255, np.uint8)
        self.texts: list[Words] = []
        self._text(MARGIN, HEADING / 2, title, LARGE)
        self._text(MARGIN, 1.5 * HEADING, "references", MEDIUM)

    def thumbnail(self, place: int, tile: Tile) -> None:
        row, column = divmod(place, self.thumbnails)
        top = self.references_top + row * (THUMBNAIL * self.aspect + CAPTION + GAP) + CAPTION
        self._picture(MARGIN + column * (THUMBNAIL + GAP), top, THUMBNAIL, tile.photograph, tile.mask, tile.caption)

    def cell(
        self, row: int, column: int, photograph: np.ndarray, mask: np.ndarray | None = None, caption: str = ""
    ) -> None:
        self._picture(self._left(column), self._cell_top(row), CELL, photograph, mask, caption)

    def heat_map(
        self, row: int, column: int, photograph: np.ndarray, anomaly_map: np.ndarray, scale: Scale, score: float
    ) -> None:
        size = self._size(CELL)
        grey = _resized(photograph.mean(-1), size)[..., None]
        shown = _over(grey, heat(_resized(anomaly_map, size), scale))
        self._paste(self._left(column), self._cell_top(row), shown, f"score {score:.3g}")

    def heading(self, column: int, words: str) -> None:
        self._text(self._left(column), self.queries_top - HEADING / 3, words, MEDIUM)

    def color_bar(self, column: int, scale: Scale) -> None:
        left = self._left(column)
        steps = np.linspace(scale.low, scale.high, _dots(CELL))[None].repeat(_dots(BAR), 0)
        self._paste(left, self.bars_top, _over(np.full(1, float(GREY)), heat(steps, scale)))
        values = {"l": scale.low, "m": sum(scale) / 2, "r": scale.high}
        for place, (side, value) in enumerate(values.items()):
            self._text(left + place * CELL / 2, self.bars_top + BAR + CAPTION / 2, f"{value:.3g}", anchor=side)

    def footnote(self, words: str) -> None:
        self._text(MARGIN, self.height - MARGIN, words, color=DARK_GREY)

    def drawn(self) -> Image.Image:
        """The page as a picture, with all words."""
        picture = Image.fromarray(self.canvas)
        pen = ImageDraw.Draw(picture)
        for each in self.texts:
            pen.text(each.place, each.words, fill=each.color, font=_font(each.size), anchor=f"{each.anchor}m")
        return picture

    def _left(self, column: int) -> float:
        return MARGIN + column * (CELL + GAP)

    def _cell_top(self, row: int) -> float:
        return self.queries_top + row * (CELL * self.aspect + CAPTION + GAP) + CAPTION

    def _size(self, width: float) -> tuple[int, int]:
        """Height and width in dots."""
        return _dots(width * self.aspect), _dots(width)

    def _text(
        self, left: float, middle: float, words: str, size: float = SMALL, color: str = "black", anchor: str = "l"
    ) -> None:
        self.texts.append(Words((_dots(left), _dots(middle)), words, size, color, anchor))

    def _picture(
        self, left: float, top: float, width: float, photograph: np.ndarray, mask: np.ndarray | None, caption: str
    ) -> None:
        size = self._size(width)
        shown = np.stack([_resized(photograph[..., channel], size) for channel in range(3)], -1)
        marked = None if mask is None else _resized(mask, size) > 0.25  # a hair stays in sight
        self._paste(left, top, outlined(_bytes(shown), marked, OUTLINE), caption)

    def _paste(self, left: float, top: float, shown: np.ndarray, caption: str = "") -> None:
        """Put a picture (h, w, 3), uint8, on the canvas, and words above it."""
        row, column = _dots(top), _dots(left)
        self.canvas[row : row + shown.shape[0], column : column + shown.shape[1]] = shown
        self._text(left, top - CAPTION / 2, caption)


@lru_cache
def _font(size: float) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(_dots(size))


def _dots(inches: float) -> int:
    return max(1, round(inches * DOTS_PER_INCH))


def _resized(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Values (H, W) at another size (h, w), float32; of a mask, the share that is marked."""
    picture = Image.fromarray(values.astype(np.float32))
    return np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR))


def _over(below: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Colours (h, w, 4) over grey (h, w, 1): (h, w, 3), uint8."""
    return _bytes(below * (1 - colors[..., 3:]) + colors[..., :3] * colors[..., 3:])


def _bytes(picture: np.ndarray) -> np.ndarray:
    return np.rint(picture * 255).clip(0, 255).astype(np.uint8)
