"""Pictures and masks as people have them, brought to plain arrays. Pure functions.

An image is a path, an http(s) address, a PIL image, a NumPy array or a torch tensor: grey, RGB, RGBA, palette,
8-bit, 16-bit or float.
A mask is any of these, a box (x0, y0, x1, y1), a polygon [(x, y), ...], or a list of boxes and polygons.
"""

import os
from collections.abc import Sequence
from io import BytesIO
from typing import Any, TypeAlias
from urllib.request import urlopen

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps

ImageInput: TypeAlias = str | os.PathLike | Image.Image | np.ndarray | torch.Tensor
MaskInput: TypeAlias = ImageInput | Sequence[float] | Sequence[Sequence[float]]

ADDRESSES = ("http://", "https://")
SECONDS_TO_ANSWER = 30  # of a server
SIXTEEN_BIT_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
UNIT_MARGIN = 1e-3  # interpolation overshoots a little; more than that is another scale
EIGHT_BIT_MARGIN = 1e-3  # of a grey level: float32 rounding


def is_image(value: object) -> bool:
    """Whether this is one image, rather than a list of them."""
    return isinstance(value, (str, os.PathLike, Image.Image, np.ndarray, torch.Tensor))


def load_image(image: ImageInput, name: str) -> np.ndarray:
    """Any image input to RGB (H, W, 3): uint8 as it is, or float32 in 0..1 where 8 bits would lose something.

    Upright by its EXIF orientation. 16-bit values are divided by 65535. Float values are taken as 0..1, or as
    0..255 if any is larger than 1. An alpha channel is dropped.
    """
    if isinstance(image, (str, os.PathLike)):
        image = _open(image, name)
    if isinstance(image, Image.Image):
        return _from_pil(image, name)
    if isinstance(image, torch.Tensor):
        array = image.detach().cpu().float() if image.dtype == torch.bfloat16 else image.detach().cpu()
        return _to_rgb(_scale(_channels_last(array.numpy(), name, first=True), name), name)
    if isinstance(image, np.ndarray):
        return _to_rgb(_scale(_channels_last(image, name, first=False), name), name)
    raise ValueError(
        f"{name}: expected a path, a PIL image, a NumPy array or a torch tensor, got {type(image).__name__}"
    )


def load_mask(mask: MaskInput, size: tuple[int, int], name: str) -> np.ndarray:
    """As `load_area`, true where anomalous, which must be somewhere."""
    array = load_area(mask, size, name)
    if not array.any():
        raise ValueError(
            f"{name}: expected at least one anomalous (non-zero) pixel, got none among {array.size}; "
            "to have the defects found for you, give no masks"
        )
    return array


def load_area(mask: MaskInput, size: tuple[int, int], name: str) -> np.ndarray:
    """Any mask input to bool (H, W) of its image's `size` (height, width)."""
    if not is_image(mask):
        return _draw(mask, size, name)
    array = _mask_array(mask, name)
    if array.shape != size:
        raise ValueError(f"{name}: expected a mask of its image's height and width {size}, got {array.shape}")
    return array


def resize_image(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(H, W, 3) uint8 or float32 in 0..1 to float32 in 0..1 of `size` (height, width), bicubic, antialiased."""
    height, width = size
    if image.dtype == np.uint8:
        resized = Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC)
        return np.asarray(resized, dtype=np.float32) / 255
    channels = [
        Image.fromarray(np.ascontiguousarray(channel)).resize((width, height), Image.Resampling.BICUBIC)
        for channel in np.moveaxis(image, -1, 0)
    ]
    return np.stack([np.asarray(channel) for channel in channels], -1).clip(0, 1)


def resize_mask(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bool (H, W) to `size`: a pixel is anomalous when any of what it covers is, so no small defect is lost."""
    fractions = Image.fromarray(mask.astype(np.float32)).resize(size[::-1], Image.Resampling.BOX)
    return np.asarray(fractions) > 0


def _open(path: str | os.PathLike, name: str) -> Image.Image:
    try:
        with Image.open(_download(path) if str(path).startswith(ADDRESSES) else path) as image:
            image.load()
            return image
    except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
        raise ValueError(f"{name}: expected a readable image file, got {os.fspath(path)!r}: {error}") from error


def _download(address: str | os.PathLike) -> BytesIO:
    with urlopen(str(address), timeout=SECONDS_TO_ANSWER) as response:  # noqa: S310 - http and https alone
        return BytesIO(response.read())


def _from_pil(image: Image.Image, name: str) -> np.ndarray:
    image = ImageOps.exif_transpose(image)
    if image.mode == "F" or image.mode in SIXTEEN_BIT_MODES:
        array = np.asarray(image)
        if array.dtype == np.int32:
            if array.min() < 0 or array.max() > 65535:
                raise ValueError(f"{name}: expected 16-bit values in 0..65535, got {array.min()}..{array.max()}")
            array = array.astype(np.uint16)
        return _to_rgb(_scale(array[..., None], name), name)
    return np.asarray(image.convert("RGB"))


def _channels_last(array: np.ndarray, name: str, first: bool) -> np.ndarray:
    """(H, W), (H, W, c) or (c, H, W) to (H, W, c), c one of 1, 3, 4; `first` settles what could be both."""
    if array.ndim == 2:
        return array[..., None]
    if array.ndim == 3 and 0 not in array.shape:
        axes = [axis for axis in ((0, -1) if first else (-1, 0)) if array.shape[axis] in (1, 3, 4)]
        if axes:
            return np.moveaxis(array, axes[0], -1)
    raise ValueError(
        f"{name}: expected an array (H, W), (H, W, c) or (c, H, W) with 1, 3 or 4 channels, got shape {array.shape}"
    )


def _scale(array: np.ndarray, name: str) -> np.ndarray:
    """Any number type to uint8, or to float32 in 0..1 where that would lose something."""
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint16:
        return _eight_bits_if_exact(array.astype(np.float32) / 65535)
    low, high = float(array.min()), float(array.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"{name}: expected finite values, got NaN or infinity")
    if np.issubdtype(array.dtype, np.integer):
        if low < 0 or high > 255:
            raise ValueError(f"{name}: expected {array.dtype} values in 0..255, or uint16, got {low:g}..{high:g}")
        return array.astype(np.uint8)
    if low < -UNIT_MARGIN or high > 255 + UNIT_MARGIN:
        raise ValueError(
            f"{name}: expected float values in 0..1 or 0..255, got {low:g}..{high:g}; "
            "images are normalised by the processor, not before it"
        )
    scaled = array.astype(np.float32) / (255 if high > 1 + UNIT_MARGIN else 1)
    return _eight_bits_if_exact(scaled.clip(0, 1))


def _eight_bits_if_exact(array: np.ndarray) -> np.ndarray:
    """An 8-bit picture that came as floats is that picture, and scores the same to the last digit."""
    eight_bits = np.rint(array * 255)
    return eight_bits.astype(np.uint8) if np.abs(array * 255 - eight_bits).max(initial=0) < EIGHT_BIT_MARGIN else array


def _to_rgb(array: np.ndarray, name: str) -> np.ndarray:
    if 0 in array.shape:
        raise ValueError(f"{name}: expected at least one pixel, got shape {array.shape}")
    return np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array[..., :3]


def _mask_array(mask: Any, name: str) -> np.ndarray:
    """A mask image or array to bool (H, W): anomalous where any channel is non-zero."""
    if isinstance(mask, (str, os.PathLike)):
        mask = _open(mask, name)
    if isinstance(mask, Image.Image):
        mask = ImageOps.exif_transpose(mask)
        # A palette index is no colour; an opaque alpha channel is no defect.
        mask = np.asarray(mask.convert("RGB") if mask.mode in ("P", "PA", "RGBA", "LA") else mask)
    array = mask.detach().cpu().float().numpy() if isinstance(mask, torch.Tensor) else mask
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite values, got NaN or infinity")
    if array.ndim == 2:
        return array != 0
    return (_channels_last(array, name, first=isinstance(mask, torch.Tensor))[..., :3] != 0).any(-1)


def _draw(shapes: Any, size: tuple[int, int], name: str) -> np.ndarray:
    """Boxes (x0, y0, x1, y1) and polygons [(x, y), ...] to bool (H, W); x1 and y1 are outside the box."""
    canvas = Image.new("L", size[::-1])
    for shape in _shapes(shapes, name):
        points = np.asarray(shape, dtype=np.float64)
        if not np.isfinite(points).all():
            raise ValueError(f"{name}: expected finite coordinates, got {shape!r}")
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
    """One box, one polygon, or a list of them, as a list."""
    if _is_shape(shapes):
        return [shapes]
    if isinstance(shapes, (list, tuple)) and shapes and all(_is_shape(shape) for shape in shapes):
        return list(shapes)
    raise ValueError(
        f"{name}: expected an image, an array, a box (x0, y0, x1, y1) or a polygon of at least three (x, y), "
        f"got {shapes!r}"
    )


def _is_shape(value: Any) -> bool:
    """A box is four numbers, a polygon at least three pairs."""
    if not isinstance(value, (list, tuple)):
        return False
    numbers = (int, float, np.number)
    if len(value) == 4 and all(isinstance(entry, numbers) for entry in value):
        return True
    return len(value) >= 3 and all(
        isinstance(point, (list, tuple)) and len(point) == 2 and all(isinstance(entry, numbers) for entry in point)
        for point in value
    )
