"""Curves of several methods, and the t-SNE of deviations, as figures."""

import colorsys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...metrics.curves import MAX_POINTS, thin
from ...metrics.pixel import FPR_LIMIT
from ...metrics.ranking import Curve, Ranking, area, overlap_curve, roc
from ..methods import METHODS
from ..results_file import IDEAL
from .deviations import DeviationSample, embed, neighbor_agreement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMAL_COLOR, ANOMALOUS_COLOR = "#3b76af", "#ef8536"  # the paper's blue and orange
DOTS_PER_INCH = 150

# The colour of each method in turn: 30 that differ, and 60 together with the dashes. Found by trying: of 24 colours,
# the two that are most alike are 15 apart in CIELAB, and none is near black or white.
HUE_STEP = 0.9
LIGHTNESS = (0.4, 0.58, 0.26)
SATURATION = (0.95, 0.5, 0.7)
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
GREYS = ("black", "0.45")  # of trained models

# Inches. They are fixed, because Matplotlib's own layout draws everything twice.
LEFT = 0.65  # of axes
SIDE = 3.6  # of axes
LEGEND = 1.3  # without names
LEGEND_LETTER = 0.077
LEGEND_LINE = 0.2
PANEL = 3.9
PANEL_HEIGHT = 4.7


@dataclass(frozen=True)
class MethodCurves:
    """Image ROC and PRO curve of a method, thinned for drawing, with their exact areas in 0..1."""

    roc: Curve
    auroc: float
    overlap: Curve
    pro: float

    @classmethod
    def of(cls, image_ranking: Ranking, pixel_ranking: Ranking) -> "MethodCurves":
        """From the rankings of `rank_images` and `rank_pixels`."""
        images, overlap = roc(image_ranking), overlap_curve(pixel_ranking)
        return cls(thin(images, MAX_POINTS), area(images), thin(overlap, MAX_POINTS), area(overlap, FPR_LIMIT))


def draw_curves(title: str, curves: Mapping[str, MethodCurves]) -> "Figure":
    """ROC curves of all methods beside their PRO curves; legends list the best first, with areas in percent."""
    from matplotlib.figure import Figure

    height = max(4.6, 1.5 + LEGEND_LINE * len(curves))
    half = LEFT + SIDE + LEGEND + LEGEND_LETTER * max(map(len, curves))  # with room for the legend
    figure = Figure(figsize=(2 * half, height), dpi=DOTS_PER_INCH)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    images, pixels = (
        figure.add_axes(((place * half + LEFT) / (2 * half), 0.55 / height, SIDE / (2 * half), 1 - 1.35 / height))
        for place in range(2)
    )
    styles = line_styles(curves)
    _draw_lines(images, {name: (each.roc, each.auroc) for name, each in curves.items()}, "AUROC", styles)
    _draw_lines(pixels, {name: (each.overlap, each.pro) for name, each in curves.items()}, "PRO", styles)
    images.plot([0, 1], [0, 1], color="0.7", linestyle=":", zorder=0)  # chance
    images.set(
        title="Images: ROC",
        xlabel="normal images taken for anomalous",
        ylabel="anomalous images found",
        xlim=(-0.01, 1.01),
    )
    pixels.set(
        title=f"Pixels: PRO, up to {FPR_LIMIT:.0%} false alarms",
        xlabel="normal pixels taken for anomalous",
        ylabel="region found, mean over regions",
        xlim=(-0.01 * FPR_LIMIT, FPR_LIMIT),
    )
    return figure


def draw_deviations(title: str, sample: DeviationSample) -> "Figure":
    """A t-SNE of each kind of deviation, like the paper's Figure 4."""
    from matplotlib.figure import Figure

    width = PANEL * len(sample.kinds) + 0.1
    figure = Figure(figsize=(width, PANEL_HEIGHT), dpi=DOTS_PER_INCH)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    order = np.random.default_rng(0).permutation(len(sample.anomalous))  # neither kind lies on top of the other
    colors = np.where(sample.anomalous, ANOMALOUS_COLOR, NORMAL_COLOR)[order]
    room = {
        "left": 0.1 / width,
        "right": 1 - 0.1 / width,
        "bottom": 0.75 / PANEL_HEIGHT,
        "top": 1 - 0.8 / PANEL_HEIGHT,
    }
    panels = figure.subplots(1, len(sample.kinds), squeeze=False, gridspec_kw={**room, "wspace": 0.04})[0]
    for axes, (name, vectors) in zip(panels, sample.kinds.items(), strict=True):
        points = embed(vectors)[order]
        axes.scatter(points[:, 0], points[:, 1], c=colors, s=12, alpha=0.7, linewidths=0)
        agreement = neighbor_agreement(vectors, sample.anomalous, sample.pictures)
        axes.set(title=f"{name} deviations", xticks=[], yticks=[])
        axes.set_xlabel(f"same kind as the nearest in another picture: {agreement:.0%}", fontsize=9)
    counts = {"normal": np.sum(~sample.anomalous), "anomalous": np.sum(sample.anomalous)}
    handles = [
        panels[0].scatter([], [], color=color, s=25, label=f"{counts[kind]} {kind} patches")
        for kind, color in (("normal", NORMAL_COLOR), ("anomalous", ANOMALOUS_COLOR))
    ]
    figure.legend(handles=handles, loc="lower left", ncols=2, frameon=False)
    return figure


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A colour and dashes for each name; for a method the same in every picture. Trained models are in black."""
    trained = [IDEAL, *(name for name in names if name not in METHODS and name != IDEAL)]
    styles = {}
    for place, name in enumerate(METHODS):
        lightness, saturation = LIGHTNESS[place % len(LIGHTNESS)], SATURATION[place % len(SATURATION)]
        color = colorsys.hls_to_rgb(HUE_STEP * place % 1, lightness, saturation)
        styles[name] = {"color": color, "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.4}
    for place, name in enumerate(trained):
        shades, dashes = divmod(place, len(DASHES))
        styles[name] = {"color": GREYS[shades % len(GREYS)], "linestyle": DASHES[dashes], "linewidth": 2.2}
    return styles


def _draw_lines(
    axes: Any, lines: Mapping[str, tuple[Curve, float]], measure: str, styles: Mapping[str, dict[str, Any]]
) -> None:
    best_first = sorted(lines.items(), key=lambda line: -np.nan_to_num(line[1][1], nan=-1.0))
    for name, ((x, y), value) in best_first:
        axes.plot(x, y, label=f"{100 * value:.1f}  {name.replace('_', ' ')}", **styles[name])
    axes.set(ylim=(-0.01, 1.01))
    axes.grid(alpha=0.25)
    place = {"loc": "upper left", "bbox_to_anchor": (1, 1), "alignment": "left"}
    axes.legend(title=f"{measure}, %", frameon=False, fontsize=9, handlelength=2.6, **place)
