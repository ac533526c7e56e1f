"""Outlines of masks and boxes, drawn on pictures. Pure functions."""

import numpy as np
from PIL import Image, ImageFilter

DEFECT = (225, 29, 72)  # red, for what is anomalous
NORMAL = (22, 128, 61)  # green, for what is normal
UNUSUAL = (229, 160, 0)  # amber, for what is unusual in a normal picture: nothing red in a good part
WIDTH = 2  # pixels


def outlined(picture: np.ndarray, mask: np.ndarray | None, color: tuple[int, int, int] = DEFECT) -> np.ndarray:
    """Draw the outline of a mask (H, W), bool, around its pixels on a picture (H, W, 3), uint8; None for no mask."""
    if mask is None:
        return picture
    grown = Image.fromarray(mask.astype(np.uint8)).filter(ImageFilter.MaxFilter(2 * WIDTH + 1))
    return np.where(((np.asarray(grown) > 0) & ~mask)[..., None], np.array(color, np.uint8), picture)
