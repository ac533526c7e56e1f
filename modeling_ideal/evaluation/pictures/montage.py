"""Montages: queries with their ground truth and the heat maps of several methods, the references on top."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...pipeline_results import Scale, heat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTLINE = "magenta"  # rare in photographs of parts, and not among the colours of heat
GREY = "0.5"  # behind the colour bar: about the mean brightness of a photograph
BAR_STEPS = 256

# Inches.
CELL = 1.9
THUMBNAIL = 1.15
GAP = 0.12
CAPTION = 0.19
MARGIN = 0.15
HEADING = 0.32
BAR = 0.12
FOOT = 0.6
DOTS_PER_INCH = 150


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
) -> "Figure":
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
        grey = np.repeat(query.tile.photograph.mean(-1, keepdims=True), 3, -1)
        for column, (name, scale) in enumerate(scales.items(), start=2):
            axes = page.cell(row, column, grey, caption=f"score {query.scores[name]:.3g}")
            axes.imshow(heat(query.maps[name], scale))
    for column, name in enumerate(["query", "ground truth", *scales]):
        page.heading(column, name.replace("_", " "))
    for column, scale in enumerate(scales.values(), start=2):
        page.color_bar(column, scale)
    page.footnote(
        "Colours: from the median (none) to the highest score of all queries of the category; one scale per method."
    )
    return page.figure


def _defect_size(mask: np.ndarray | None) -> str:
    if mask is None:
        return "not marked"
    return f"{mask.mean():.2%} of the picture" if mask.any() else "no defect"


class _Page:
    """Places things on a figure, in inches from its top left corner."""

    def __init__(self, title: str, aspect: float, num_references: int, num_queries: int, columns: int) -> None:
        from matplotlib.figure import Figure

        self.aspect = aspect
        self.width = 2 * MARGIN + columns * (CELL + GAP) - GAP
        self.thumbnails = int((self.width - 2 * MARGIN + GAP) // (THUMBNAIL + GAP))  # in a row
        rows = -(-num_references // self.thumbnails)
        self.references_top = 2 * HEADING
        self.queries_top = self.references_top + rows * (THUMBNAIL * aspect + CAPTION + GAP) + 1.25 * HEADING
        self.bars_top = self.queries_top + num_queries * (CELL * aspect + CAPTION + GAP) + GAP
        self.height = self.bars_top + BAR + FOOT
        self.figure = Figure(figsize=(self.width, self.height), dpi=DOTS_PER_INCH)
        self._text(MARGIN, HEADING / 2, title, fontsize=12, fontweight="bold")
        self._text(MARGIN, 1.5 * HEADING, "references", fontsize=10)

    def thumbnail(self, place: int, tile: Tile) -> None:
        row, column = divmod(place, self.thumbnails)
        top = self.references_top + row * (THUMBNAIL * self.aspect + CAPTION + GAP) + CAPTION
        self._picture(MARGIN + column * (THUMBNAIL + GAP), top, THUMBNAIL, tile.photograph, tile.mask, tile.caption)

    def cell(
        self, row: int, column: int, photograph: np.ndarray, mask: np.ndarray | None = None, caption: str = ""
    ) -> Any:
        top = self.queries_top + row * (CELL * self.aspect + CAPTION + GAP) + CAPTION
        return self._picture(self._left(column), top, CELL, photograph, mask, caption)

    def heading(self, column: int, words: str) -> None:
        self._text(self._left(column), self.queries_top - HEADING / 3, words, fontsize=9.5, fontweight="bold")

    def color_bar(self, column: int, scale: Scale) -> None:
        axes = self._axes(self._left(column), self.bars_top, CELL, BAR)
        steps = np.linspace(scale.low, scale.high, BAR_STEPS)[None]
        axes.set_facecolor(GREY)
        axes.imshow(heat(steps, scale), aspect="auto", extent=(0, 1, 0, 1))
        axes.set_yticks([])
        axes.set_xticks([0, 0.5, 1], [f"{value:.3g}" for value in (scale.low, sum(scale) / 2, scale.high)])
        axes.tick_params(labelsize=8, length=2)
        labels = axes.get_xticklabels()
        labels[0].set_ha("left")
        labels[-1].set_ha("right")

    def footnote(self, words: str) -> None:
        self._text(MARGIN, self.height - MARGIN, words, fontsize=8, color="0.35")

    def _left(self, column: int) -> float:
        return MARGIN + column * (CELL + GAP)

    def _axes(self, left: float, top: float, width: float, height: float) -> Any:
        bottom = self.height - top - height
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def _text(self, left: float, middle: float, words: str, **style: Any) -> None:
        self.figure.text(left / self.width, 1 - middle / self.height, words, va="center", **style)

    def _picture(
        self, left: float, top: float, width: float, photograph: np.ndarray, mask: np.ndarray | None, caption: str
    ) -> Any:
        axes = self._axes(left, top, width, width * self.aspect)
        axes.imshow(photograph)
        if mask is not None and mask.any():
            # A border of nothing closes outlines at the picture's edge.
            rows, columns = (np.arange(-1, side + 1) for side in mask.shape)
            axes.contour(columns, rows, np.pad(mask, 1), levels=[0.5], colors=OUTLINE, linewidths=0.9)
        axes.set(xlim=(-0.5, photograph.shape[1] - 0.5), ylim=(photograph.shape[0] - 0.5, -0.5))
        axes.set_axis_off()
        self._text(left, top - CAPTION / 2, caption, fontsize=8)
        return axes
