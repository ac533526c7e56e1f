"""Images of any kind as NumPy arrays. Pure functions.

An image is a path, an http(s) address, a PIL image, a NumPy array or a torch tensor: grey, RGB, RGBA or palette, with
8-bit, 16-bit or float values.
"""

import os
from io import BytesIO
from typing import Any, TypeAlias
from urllib.request import urlopen

import numpy as np
import torch
from PIL import Image, ImageOps

ImageInput: TypeAlias = str | os.PathLike | Image.Image | np.ndarray | torch.Tensor

ADDRESSES = ("http://", "https://")
SECONDS_TO_ANSWER = 30  # time limit for a server
SIXTEEN_BIT_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
UNIT_MARGIN = 1e-3  # interpolation may overshoot 0..1 by a little; more than this means another scale
EIGHT_BIT_MARGIN = 1e-3  # of a grey level, for float32 rounding


def is_single_image(value: object) -> bool:
    """Whether a value is one image rather than a list of images."""
    return isinstance(value, (str, os.PathLike, Image.Image, np.ndarray, torch.Tensor))


def image_list(images: Any) -> list:
    """Bring one image, a stack (n, H, W, c) or a sequence of images to a list of images."""
    return [images] if is_single_image(images) and getattr(images, "ndim", 0) < 4 else list(images)


def load_image(image: ImageInput, name: str) -> np.ndarray:
    """Load an image as RGB (H, W, 3): uint8 if that is exact, otherwise float32 in 0..1.

    The EXIF orientation is applied. 16-bit values are divided by 65535. Float values are taken as 0..1, or as
    0..255 if any is larger than 1. An alpha channel is dropped.

    Args:
        image: the image.
        name: what to call the image in error messages.
    """
    if isinstance(image, (str, os.PathLike)):
        image = open_image(image, name)
    if isinstance(image, Image.Image):
        return _from_pil(image, name)
    if isinstance(image, torch.Tensor):
        array = image.detach().cpu().float() if image.dtype == torch.bfloat16 else image.detach().cpu()
        return _to_rgb(_scale(channels_last(array.numpy(), name, first=True), name), name)
    if isinstance(image, np.ndarray):
        return _to_rgb(_scale(channels_last(image, name, first=False), name), name)
    raise ValueError(
        f"{name}: expected a path, a PIL image, a NumPy array or a torch tensor, got {type(image).__name__}"
    )


def open_image(path: str | os.PathLike, name: str | None = None) -> Image.Image:
    """Open and decode an image, with its EXIF orientation applied.

    Args:
        path: the path or http(s) address.
        name: what to call the image in error messages, before its path.
    """
    try:
        with Image.open(_download(path) if str(path).startswith(ADDRESSES) else path) as image:
            image.load()
            return upright(image)
    except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
        raise unreadable(path, error, name) from error


def upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation of an image."""
    turned = ImageOps.exif_transpose(image)
    turned.format = image.format  # lost in a copy, but lossy masks are read with a margin
    return turned


def unreadable(path: str | os.PathLike, error: Exception, name: str | None = None) -> ValueError:
    """Make the error for a file that cannot be read as an image."""
    where = f"{name}: {os.fspath(path)}" if name else os.fspath(path)
    return ValueError(f"{where}: expected a readable image, got {type(error).__name__}: {error}")


def resize_image(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize (H, W, 3), uint8 or float32 in 0..1, to `size` (height, width): float32 in 0..1, bicubic, antialiased."""
    height, width = size
    if image.dtype == np.uint8:
        resized = Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC)
        return np.asarray(resized, dtype=np.float32) / 255
    channels = [
        Image.fromarray(np.ascontiguousarray(channel)).resize((width, height), Image.Resampling.BICUBIC)
        for channel in np.moveaxis(image, -1, 0)
    ]
    return np.stack([np.asarray(channel) for channel in channels], -1).clip(0, 1)


def _download(address: str | os.PathLike) -> BytesIO:
    with urlopen(str(address), timeout=SECONDS_TO_ANSWER) as response:  # noqa: S310 - http and https only
        return BytesIO(response.read())


def _from_pil(image: Image.Image, name: str) -> np.ndarray:
    image = upright(image)
    if image.mode == "F" or image.mode in SIXTEEN_BIT_MODES:
        array = np.asarray(image)
        if array.dtype == np.int32:
            if array.min() < 0 or array.max() > 65535:
                raise ValueError(f"{name}: expected 16-bit values in 0..65535, got {array.min()}..{array.max()}")
            array = array.astype(np.uint16)
        return _to_rgb(_scale(array[..., None], name), name)
    return np.asarray(image.convert("RGB"))


def channels_last(array: np.ndarray, name: str, first: bool) -> np.ndarray:
    """Bring (H, W), (H, W, c) or (c, H, W), with c 1, 3 or 4, to (H, W, c); `first` decides ambiguous shapes."""
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
    """Convert any number type to uint8 if that is exact, otherwise to float32 in 0..1."""
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
    """Convert an 8-bit image given as floats back to uint8, so that it scores exactly the same."""
    eight_bits = np.rint(array * 255)
    return eight_bits.astype(np.uint8) if np.abs(array * 255 - eight_bits).max(initial=0) < EIGHT_BIT_MARGIN else array


def _to_rgb(array: np.ndarray, name: str) -> np.ndarray:
    if 0 in array.shape:
        raise ValueError(f"{name}: expected at least one pixel, got shape {array.shape}")
    return np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array[..., :3]
