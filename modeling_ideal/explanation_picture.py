"""The picture of an explanation: what is suspicious, the closest good part and the nearest defect, side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .outlines import DEFECT, NORMAL, outlined

SIDE = 300  # pixels of a panel
GAP = 16
TEXT, CAPTION = 19, 15  # sizes of letters
LINE = 1.35  # height of a line, in letters
INK, FAINT, PAPER, EMPTY = (28, 32, 36), (96, 100, 108), (255, 255, 255), (238, 240, 242)
LEAST_SHARE = 0.25  # of a picture's longer side that a crop shows
AROUND = 1.8  # times the suspicious region is what a crop shows of its surroundings

Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels, without x1 and y1


class Panel(NamedTuple):
    """One part of the picture: a crop with an outline, and words below."""

    caption: str
    picture: np.ndarray | None  # (H, W, 3) uint8; None if it was not kept
    mask: np.ndarray | None = None  # (H, W) bool, to be outlined
    color: tuple[int, int, int] = DEFECT
    window: Box | None = None  # what is shown; None for all
    compared: np.ndarray | None = None  # (H, W) bool, the patch that is compared with the next panel


def window_around(box: Box, size: tuple[int, int], least_share: float = LEAST_SHARE) -> Box:
    """A square around a box in a picture of `size` (height, width), at least a share of its longer side, inside it."""
    longest = max(size)
    side = min(max(AROUND * max(box[2] - box[0], box[3] - box[1]), least_share * longest), longest)
    ends = []
    for low, high, limit in ((box[0], box[2], size[1]), (box[1], box[3], size[0])):
        length = min(round(side), limit)
        start = min(max(round((low + high - length) / 2), 0), limit - length)
        ends.append((start, start + length))
    return ends[0][0], ends[1][0], ends[0][1], ends[1][1]


def draw_explanation(text: str, panels: Sequence[Panel], anomalous: bool) -> Image.Image:
    """Draw the panels in a row, with the text above them."""
    width = GAP + len(panels) * (SIDE + GAP)
    lines = _wrapped(text, width - 2 * GAP, TEXT)
    captions = [_wrapped(panel.caption, SIDE, CAPTION) for panel in panels]
    top = GAP + round(len(lines) * TEXT * LINE) + GAP
    height = top + SIDE + GAP // 2 + round(max(map(len, captions)) * CAPTION * LINE) + GAP
    canvas = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(canvas)
    _write(draw, lines, (GAP, GAP), TEXT, DEFECT if anomalous else NORMAL)
    for index, (panel, words) in enumerate(zip(panels, captions, strict=True)):
        left = GAP + index * (SIDE + GAP)
        draw.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), fill=EMPTY)
        if panel.picture is not None:
            shown = _crop(panel)
            canvas.paste(shown, (left + (SIDE - shown.width) // 2, top + (SIDE - shown.height) // 2))
        else:
            _write(draw, ["no picture kept"], (left + SIDE // 3, top + SIDE // 2), CAPTION, FAINT)
        _write(draw, words, (left, top + SIDE + GAP // 2), CAPTION, INK)
    return canvas


def _crop(panel: Panel) -> Image.Image:
    """The part of a panel's picture that is shown, at the size of the panel, with its outline."""
    picture = panel.picture
    if picture is None:
        raise RuntimeError("expected a picture to show")
    x0, y0, x1, y1 = panel.window or (0, 0, picture.shape[1], picture.shape[0])
    scale = SIDE / max(x1 - x0, y1 - y0)
    size = (max(1, round((x1 - x0) * scale)), max(1, round((y1 - y0) * scale)))
    part = Image.fromarray(picture[y0:y1, x0:x1]).resize(size, Image.Resampling.BICUBIC)
    pixels = np.asarray(part)
    for marks, color in ((panel.compared, NORMAL), (panel.mask, panel.color)):
        if marks is not None:
            marked = Image.fromarray(marks[y0:y1, x0:x1]).resize(size, Image.Resampling.NEAREST)
            pixels = outlined(pixels, np.asarray(marked), color)
    return Image.fromarray(pixels)


def _wrapped(text: str, width: int, size: int) -> list[str]:
    """Break text into lines of at most `width` pixels."""
    font, lines = ImageFont.load_default(size), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _write(
    draw: ImageDraw.ImageDraw, lines: Sequence[str], place: tuple[int, int], size: int, color: tuple[int, int, int]
) -> None:
    for number, line in enumerate(lines):
        draw.text((place[0], place[1] + round(number * size * LINE)), line, color, ImageFont.load_default(size))
