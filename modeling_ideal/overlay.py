"""Scores as colours over a photograph, on a scale that is never stretched to the picture. Pure functions."""

from typing import NamedTuple

import numpy as np
from PIL import Image

# From nothing to heat: blue, cyan, green in the middle, and red at the hot end alone.
COLORS = np.array([(0.12, 0.16, 0.55), (0.10, 0.62, 0.90), (0.38, 0.88, 0.42), (0.98, 0.76, 0.18), (0.78, 0.07, 0.05)])
OPACITY = 0.75  # of the highest score; the photograph stays visible below
NARROWEST = 1e-6  # half of a scale, for thresholds at 0 or 1


class Scale(NamedTuple):
    """The scores at the cold and at the hot end of the colours."""

    low: float
    high: float


def threshold_scale(threshold: float) -> Scale:
    """The scale of a threshold in 0..1, which is its middle: what counts as normal stays on the cold side of green.

    Half of the threshold is already nothing; one and a half of it, or 1 if that is nearer, is red.
    """
    half = max(min(threshold / 2, 1 - threshold), NARROWEST)
    return Scale(threshold - half, threshold + half)


def heat(scores: np.ndarray, scale: Scale) -> np.ndarray:
    """Scores of any shape (...) as colours (..., 4), RGBA in 0..1: transparent at the cold end, more opaque with heat.

    With all scores equal nothing stands out, and everything is cold.
    """
    width = scale.high - scale.low
    share = np.clip((scores - scale.low) / width, 0, 1) if width > 0 else np.zeros_like(scores)
    places = np.linspace(0, 1, len(COLORS))
    channels = [np.interp(share, places, channel) for channel in COLORS.T]
    return np.stack([*channels, OPACITY * share], -1)


def draw_overlay(picture: np.ndarray, anomaly_map: np.ndarray, threshold: float) -> Image.Image:
    """The photograph in grey, whose own colours could be taken for heat, below its anomaly map.

    Args:
        picture: (H, W, 3), uint8 or float in 0..1.
        anomaly_map: (H, W) in 0..1.
        threshold: the middle of the colours, see `threshold_scale`.
    """
    grey = picture.mean(-1, keepdims=True) / (255 if picture.dtype == np.uint8 else 1)  # (H, W, 1)
    colors = heat(anomaly_map, threshold_scale(threshold))
    blended = grey * (1 - colors[..., 3:]) + colors[..., :3] * colors[..., 3:]
    return Image.fromarray(np.rint(blended * 255).astype(np.uint8))
