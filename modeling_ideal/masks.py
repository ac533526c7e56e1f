"""Masks of any kind as boolean arrays: True where something is marked. Pure functions.

A mask is an image in any form that `image_inputs` accepts, a box (x0, y0, x1, y1), a polygon [(x, y), ...], or a list
of boxes and polygons. `marked_pixels` is the only place that decides what a mask image marks.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from .image_inputs import (
    ANIMATED,
    FORMATS_WITH_FRAMES,
    NUMBERS,
    ImageInput,
    channels_last,
    check_ordered,
    is_encoded,
    is_single_image,
    named,
    open_image,
    read_image,
    tensor_values,
)

MaskInput: TypeAlias = ImageInput | Sequence[float] | Sequence[Sequence[float]]

LOSSY_FORMATS = ("JPEG", "MPO", "JPEG2000", "WEBP", "AVIF")  # the last three may be lossless, which no file tells
HALF_OF_WHITE = 127
PALETTE_MODES = ("P", "PA")
PLAIN_MODES = ("1", "L", "LA", "RGB", "RGBA", "F", "I", "I;16", "I;16B", "I;16L", "I;16N")


def mask_list(masks: Any, num_images: int) -> list:
    """Bring the masks of some images to a list; for a single image, the mask, box or polygon may be given itself."""
    is_list = isinstance(masks, (list, tuple)) and (len(masks) == 1 or any(map(is_single_image, masks)))
    if num_images == 1 and not is_list:
        return [masks]
    if is_single_image(masks) and getattr(masks, "ndim", 0) < 3:
        raise ValueError(f"masks: expected one for each of {num_images} abnormal images, got a single one")
    check_ordered(masks, "masks", f"one for each of {num_images} abnormal images")
    return list(masks)


def load_mask(mask: MaskInput, size: tuple[int, int], name: str) -> np.ndarray:
    """Load the mask of an abnormal image like `load_area`; ValueError if it marks nothing."""
    array = load_area(mask, size, name)
    if not array.any():
        raise ValueError(
            f"{named(mask, name)}: expected at least one anomalous (non-zero) pixel, got none among {array.size}; "
            "without masks the model finds the defects itself"
        )
    return array


def load_area(mask: MaskInput, size: tuple[int, int], name: str) -> np.ndarray:
    """Load a mask of any kind as bool (H, W), which must be the `size` of its image; see `marked_pixels`.

    Args:
        mask: the mask.
        size: (height, width) of its image.
        name: what to call the mask in error messages.
    """
    if not is_single_image(mask):
        return _draw(mask, size, name)
    array = _read_marks(mask, name)
    if array.shape != size:
        expected = f"a mask of its image's height and width {size}"
        raise ValueError(f"{named(mask, name)}: expected {expected}, got {array.shape}")
    return array


def marked_pixels(mask: Image.Image, name: str) -> np.ndarray:
    """Read what a mask image marks: bool (H, W), True where any colour channel is not zero.

    - Fully transparent pixels mark nothing, whatever their colour.
    - A JPEG file is lossy, and its zeros are approximate: a pixel is marked if it is brighter than half of white. The
      same holds for WebP, AVIF and JPEG 2000.
    - A palette image is read by its colours; if they are all black but the indices differ, as in an index mask without
      a palette, by its indices.
    - A file with several frames is refused: one of them alone would not be what its author marked.

    Args:
        mask: the mask image.
        name: what to call the mask in error messages.
    """
    if mask.info.get(ANIMATED) and mask.format in FORMATS_WITH_FRAMES:
        raise ValueError(f"{name}: expected a mask of one frame, got a {mask.format} file of several")
    lossy = mask.format in LOSSY_FORMATS
    if mask.mode in PALETTE_MODES:
        indices = np.asarray(mask) if mask.mode == "P" else np.asarray(mask)[..., 0]
        mask = mask.convert("RGBA")
        if not np.asarray(mask)[..., :3].any() and indices.min() < indices.max():
            return indices != 0
    elif mask.mode not in PLAIN_MODES:
        mask = mask.convert("RGB")
    limit = HALF_OF_WHITE if lossy else 0
    return _nonzero_pixels(np.asarray(mask), limit, has_alpha=mask.mode in ("LA", "RGBA"), name=name)


def resize_mask(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize bool (H, W) to `size`; a pixel is True if any pixel it covers is, so that no small defect is lost."""
    fractions = Image.fromarray(mask.astype(np.float32)).resize(size[::-1], Image.Resampling.BOX)
    return np.asarray(fractions) > 0


def patch_masks(masks: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Reduce pixel masks (..., H, W) to patch masks (..., h, w), bool: a patch is True if any of its pixels is."""
    height, width = masks.shape[-2:]
    if height % patch_size[0] or width % patch_size[1]:
        raise ValueError(f"masks: expected sides that are multiples of {patch_size}, got {(height, width)}")
    columns = (masks != 0).unflatten(-1, (-1, patch_size[1])).any(-1)  # (..., H, w)
    return columns.unflatten(-2, (-1, patch_size[0])).any(-2)


def _read_marks(mask: Any, name: str) -> np.ndarray:
    """Read what a mask in any image form marks: bool (H, W)."""
    if is_encoded(mask):
        return marked_pixels(open_image(mask, name), named(mask, name))
    if isinstance(mask, Image.Image):
        return marked_pixels(read_image(mask, name), name)
    array = tensor_values(mask, name) if isinstance(mask, torch.Tensor) else mask
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"{name}: expected an array of integers, floats or booleans, got {array.dtype}")
    array = channels_last(array, name, first=isinstance(mask, torch.Tensor))
    return _nonzero_pixels(array, 0, has_alpha=array.shape[-1] == 4, name=name)


def _nonzero_pixels(pixels: np.ndarray, limit: int, has_alpha: bool, name: str) -> np.ndarray:
    """Find visible pixels of (H, W) or (H, W, c) with a colour above `limit`, or not zero for 0: bool (H, W)."""
    if np.issubdtype(pixels.dtype, np.floating) and not np.isfinite(pixels).all():
        raise ValueError(f"{name}: expected finite values, got NaN or infinity")
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    above = pixels > limit if limit else pixels != 0
    visible = pixels[..., -1] != 0 if has_alpha else True
    return np.any(above[..., :-1] if has_alpha else above, axis=-1) & visible


def _draw(shapes: Any, size: tuple[int, int], name: str) -> np.ndarray:
    """Draw boxes (x0, y0, x1, y1), without x1 and y1, and polygons [(x, y), ...] to bool (H, W) of `size`."""
    canvas = Image.new("L", size[::-1])
    for shape in _shapes(shapes, name):
        points = np.asarray(shape, dtype=np.float64)
        if not np.isfinite(points).all():
            raise ValueError(f"{name}: expected finite coordinates, got {shape!r:.200}")
        if points.ndim == 1:
            x0, y0, x1, y1 = points
            if x0 >= x1 or y0 >= y1:
                raise ValueError(f"{name}: expected a box (x0, y0, x1, y1) with x0 < x1 and y0 < y1, got {shape!r}")
            corner = (np.floor(x0), np.floor(y0), np.ceil(x1) - 1, np.ceil(y1) - 1)
            ImageDraw.Draw(canvas).rectangle(corner, fill=1)
        else:
            ImageDraw.Draw(canvas).polygon([tuple(point) for point in points], fill=1, outline=1)
    return np.asarray(canvas) != 0


def _shapes(shapes: Any, name: str) -> list:
    """Bring one box or polygon, or a list of them, to a list."""
    if _is_shape(shapes):
        return [shapes]
    if isinstance(shapes, (list, tuple)) and shapes and all(_is_shape(shape) for shape in shapes):
        return list(shapes)
    raise ValueError(
        f"{name}: expected an image, an array, a box (x0, y0, x1, y1) or a polygon of at least three (x, y), "
        f"got {repr(shapes) if isinstance(shapes, (list, tuple)) else type(shapes).__name__:.200}"
    )


def _is_shape(value: Any) -> bool:
    """Whether a value is a box (four numbers) or a polygon (at least three pairs of numbers)."""
    if not isinstance(value, (list, tuple)):
        return False
    numbers = (int, float, np.number)
    if len(value) == 4 and all(isinstance(entry, numbers) for entry in value):
        return True
    return len(value) >= 3 and all(
        isinstance(point, (list, tuple)) and len(point) == 2 and all(isinstance(entry, numbers) for entry in point)
        for point in value
    )
