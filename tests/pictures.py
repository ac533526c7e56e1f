"""Pictures made of noise, smooth as photographs are."""

import numpy as np
from PIL import Image


def photograph(seed, size=(30, 40)):
    """(H, W, 3) uint8 of `size` (height, width)."""
    values = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.array(Image.fromarray(values).resize(size[::-1], Image.Resampling.BICUBIC))


def texture(height, width, seed):
    """A woven cloth with uneven dye and some noise, (height, width, 3) uint8."""
    random = np.random.default_rng(seed)
    rows, columns = (np.arange(side, dtype=np.float32) + random.integers(100) for side in (height, width))
    weave = np.sin(rows * 2 * np.pi / 11)[:, None] * np.sin(columns * 2 * np.pi / 9)
    dye = random.integers(0, 40, (height // 60 + 2, width // 60 + 2), dtype=np.uint8)
    grey = np.asarray(Image.fromarray(dye).resize((width, height), Image.Resampling.BICUBIC), np.float32)
    grey += 110 + 40 * weave + random.integers(-8, 9, (height, width), dtype=np.int8)
    return np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, 2)


def with_defect(picture, top, left, side):
    """The picture with a dark square, and its mask."""
    spoilt, mask = picture.copy(), np.zeros(picture.shape[:2], bool)
    mask[top : top + side, left : left + side] = True
    spoilt[mask] //= 4
    return spoilt, mask
