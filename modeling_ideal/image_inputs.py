"""Images of any kind as NumPy arrays. Pure functions.

An image is a path, an http(s) address, the bytes of an image file, a file object, a PIL image, a NumPy array or a
torch tensor: grey, RGB, RGBA or palette, with 8-bit, 16-bit or float values.
"""

import math
import os
from collections.abc import Iterable, Mapping, Set
from io import BytesIO
from time import monotonic
from typing import Any, BinaryIO, TypeAlias, TypeGuard
from urllib.request import urlopen

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

ImageFile: TypeAlias = str | os.PathLike | bytes | bytearray | memoryview
EncodedImage: TypeAlias = ImageFile | BinaryIO
ImageInput: TypeAlias = EncodedImage | Image.Image | np.ndarray | torch.Tensor

ADDRESSES = ("http://", "https://")
SECONDS_TO_ANSWER = 30  # time limit for a server
MOST_BYTES_TO_FETCH = 200_000_000
SIXTEEN_BIT_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
ANIMATED = "is_animated"  # Pillow's attribute of a file with several frames
FORMATS_WITH_FRAMES = ("GIF", "PNG", "TIFF", "WEBP")  # in other formats, further frames are layers and previews
PROGRAMS = ("EPS",)  # formats that Pillow would hand to another program, which runs what is in the file
TILE_SIDES = (322, 323)  # tags of a TIFF file; a decoder takes memory for a whole tile, however small the picture is
LARGEST_TILE = 4096 * 4096  # pixels
LONGEST_TEXT = 300  # characters of a name or of an error that a message repeats
NUMBERS = "biuf"  # NumPy's kinds of arrays that may be images
UNIT_MARGIN = 1e-3  # interpolation may overshoot 0..1 by a little; more than this means another scale
EIGHT_BIT_MARGIN = 1e-3  # of a grey level, for float32 rounding


def is_single_image(value: object) -> bool:
    """Whether a value is one image rather than a list of images."""
    return is_encoded(value) or isinstance(value, (Image.Image, np.ndarray, torch.Tensor))


def is_encoded(value: object) -> TypeGuard[EncodedImage]:
    """Whether a value is an image file: a path, an address, bytes or a file object."""
    return isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview)) or is_file_object(value)


def is_file_object(value: object) -> bool:
    """Whether a value can be read like an open file."""
    return callable(getattr(value, "read", None))


def image_list(images: Any, name: str) -> list:
    """Bring one image, a stack (n, H, W, c) or a sequence of images, called `name`, to a list of images."""
    if not is_single_image(images):
        check_ordered(images, name, "an image or a list of images")
    return [images] if is_single_image(images) and getattr(images, "ndim", 0) < 4 else list(images)


def check_ordered(values: Any, name: str, expected: str) -> None:
    """Check that values, called `name`, can be listed in order; the keys of a dictionary would be taken for them."""
    if not isinstance(values, Iterable) or isinstance(values, (Mapping, Set)):
        raise ValueError(f"{name}: expected {expected}, got {type(values).__name__}")


def file_content(image: Any, name: str) -> Any:
    """Read a file object from its beginning, or from where it is if it cannot seek, to bytes; keep all else.

    Bytes, unlike a stream, can be read more than once and by another process.
    """
    if not is_file_object(image):
        return image
    try:
        if hasattr(image, "seekable") and image.seekable():
            image.seek(0)
        content = image.read()
    except (OSError, ValueError) as error:  # ValueError from a closed file
        raise ValueError(f"{name}: expected a readable file, got {type(error).__name__}: {error}") from error
    if not isinstance(content, bytes):
        raise ValueError(f"{name}: expected a file opened in binary mode, got {type(content).__name__} from it")
    return content


def load_image(image: ImageInput, name: str) -> np.ndarray:
    """Load an image as RGB (H, W, 3): uint8 if that is exact, otherwise float32 in 0..1.

    The EXIF orientation is applied. 16-bit values are divided by 65535. Float values are taken as 0..1, or as
    0..255 if any is larger than 1. An alpha channel is dropped. A file of several frames is refused, since a verdict
    on the first would say nothing of the others; of a PIL image, the current frame is taken.

    Args:
        image: the image.
        name: what to call the image in error messages.
    """
    if is_encoded(image):
        return _from_pil(open_image(image, name, one_frame=True), named(image, name))
    if isinstance(image, Image.Image):
        return _from_pil(image, name)
    if isinstance(image, torch.Tensor):
        return _to_rgb(_scale(channels_last(tensor_values(image, name), name, first=True), name))
    if isinstance(image, np.ndarray):
        return _to_rgb(_scale(channels_last(image, name, first=False), name))
    raise ValueError(
        f"{name}: expected a path, bytes, a file object, a PIL image, a NumPy array or a torch tensor, "
        f"got {type(image).__name__}"
    )


def open_image(image: EncodedImage, name: str | None = None, *, one_frame: bool = False) -> Image.Image:
    """Open and decode an image, with its EXIF orientation applied.

    Args:
        image: the path, http(s) address, bytes or file object.
        name: what to call the image in error messages, before its path.
        one_frame: whether to refuse a file with a further frame that is no preview: one that is not smaller.
    """
    file: ImageFile = file_content(image, name or "image")
    try:
        source = _source(file)
        _check_file(source)
        with Image.open(source) as opened:
            opened.load()
            turned, several = upright(opened), one_frame and _has_further_frame(opened)
    except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
        raise unreadable(file, error, name) from error
    if several:
        raise ValueError(f"{named(file, name)}: expected an image of one frame, got a {turned.format} file of several")
    return turned


def _check_file(source: str | os.PathLike | BytesIO) -> None:
    """Refuse an image file, by its header and its checksums, that decoding would run, take for whole or drown in."""
    with Image.open(source) as opened:
        if opened.format in PROGRAMS:
            raise ValueError(f"a file of the format {opened.format}, which is a program")
        tile = math.prod(getattr(opened, "tag_v2", {}).get(side, 0) for side in TILE_SIDES)
        if tile > max(LARGEST_TILE, math.prod(opened.size)):
            raise ValueError(f"tiles of {tile:,} pixels for a picture of {opened.width} x {opened.height}")
        if opened.format == "PNG":
            opened.verify()  # decoding does not compare the checksums of pixels
    if isinstance(source, BytesIO):
        source.seek(0)


def _has_further_frame(opened: Image.Image) -> bool:
    """Whether a file has, after the first frame, one that is not smaller."""
    if opened.format not in FORMATS_WITH_FRAMES or not getattr(opened, ANIMATED, False):
        return False
    first = opened.width * opened.height
    for place in range(1, getattr(opened, "n_frames", 1)):
        opened.seek(place)
        if opened.width * opened.height >= first:
            return True
    return False


def upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation of an image; EXIF that cannot be read turns nothing."""
    try:
        turned = ImageOps.exif_transpose(image)
    except Exception:  # Pillow raises SyntaxError, struct.error, ... once, and passes over it the next time
        turned = image.copy()
    # Lost in a copy, but lossy masks are read with a margin, and a mask has one frame.
    turned.format = image.format
    turned.info[ANIMATED] = image.info.get(ANIMATED) or getattr(image, ANIMATED, False)
    return turned


def unreadable(file: ImageFile, error: Exception, name: str | None = None) -> ValueError:
    """Make the error for a file that cannot be read as an image."""
    return ValueError(f"{named(file, name)}: expected a readable image, got {_reason(error)}")


def _reason(error: Exception) -> str:
    """What an error of a library says, in a bearable length, and without the place of an object in memory."""
    if isinstance(error, UnidentifiedImageError):
        return f"{type(error).__name__}: the format is none that Pillow knows"
    return f"{type(error).__name__}: {error!s:.{LONGEST_TEXT}}"


def named(image: object, name: str | None) -> str:
    """What to call an image or a mask in error messages: its name, and the path or the size of a file."""
    size = f"{len(image)} bytes" if isinstance(image, (bytes, bytearray, memoryview)) else ""
    what = f"{image!s:.{LONGEST_TEXT}}" if isinstance(image, (str, os.PathLike)) else size
    return ": ".join(part for part in (name, what) if part)


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


def _source(file: ImageFile) -> str | os.PathLike | BytesIO:
    """What Pillow can open: a path, or the bytes of a file or an address."""
    if isinstance(file, (str, os.PathLike)):
        return _download(str(file)) if str(file).startswith(ADDRESSES) else file
    return BytesIO(file)


def _download(address: str) -> BytesIO:
    deadline, content = monotonic() + SECONDS_TO_ANSWER, bytearray()
    with urlopen(address, timeout=SECONDS_TO_ANSWER) as response:  # noqa: S310 - http and https only
        while part := response.read1():
            content += part
            if len(content) > MOST_BYTES_TO_FETCH or monotonic() > deadline:
                raise OSError(f"more than {MOST_BYTES_TO_FETCH} bytes, or more than {SECONDS_TO_ANSWER} s")
    return BytesIO(content)


def read_image(image: Image.Image, name: str) -> Image.Image:
    """Read a PIL image, which may be a file that was opened and not read yet, and turn it upright."""
    try:
        image.load()
        turned = upright(image.convert("LA") if image.mode == "La" else image)  # which converts to nothing else
    except Exception as error:  # as in `open_image`
        raise ValueError(f"{name}: expected a readable image, got {_reason(error)}") from error
    if 0 in turned.size:
        raise ValueError(f"{name}: expected at least one pixel, got a picture of {turned.width} x {turned.height}")
    return turned


def tensor_values(tensor: torch.Tensor, name: str) -> np.ndarray:
    """The values of a tensor; as float32, where NumPy lacks the type."""
    try:
        plain = tensor.detach().cpu()
        return plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
    except (TypeError, RuntimeError) as error:  # sparse, or of the device "meta", or of another library's type
        kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise ValueError(f"{name}: expected a dense tensor of numbers, got one of {kind}") from error


def _from_pil(image: Image.Image, name: str) -> np.ndarray:
    image = read_image(image, name)
    if image.mode == "F" or image.mode in SIXTEEN_BIT_MODES:
        array = np.asarray(image)
        if array.dtype == np.int32:
            if array.min() < 0 or array.max() > 65535:
                raise ValueError(f"{name}: expected 16-bit values in 0..65535, got {array.min()}..{array.max()}")
            array = array.astype(np.uint16)
        return _to_rgb(_scale(array[..., None], name))
    return np.asarray(image.convert("RGB"))


def channels_last(array: np.ndarray, name: str, first: bool) -> np.ndarray:
    """Bring (H, W), (H, W, c) or (c, H, W), with c 1, 3 or 4, to (H, W, c); `first` decides ambiguous shapes."""
    if 0 in array.shape:
        raise ValueError(f"{name}: expected at least one pixel, got shape {array.shape}")
    if array.ndim == 2:
        return array[..., None]
    for axis in (0, -1) if first else (-1, 0):
        if array.ndim == 3 and array.shape[axis] in (1, 3, 4):
            return np.moveaxis(array, axis, -1)
    raise ValueError(
        f"{name}: expected an array (H, W), (H, W, c) or (c, H, W) with 1, 3 or 4 channels, got shape {array.shape}"
    )


def _scale(array: np.ndarray, name: str) -> np.ndarray:
    """Convert any number type to uint8 if that is exact, otherwise to float32 in 0..1."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)  # files and Pillow's I;16B may be big-endian
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"{name}: expected an array of integers, floats or booleans, got {array.dtype}")
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


def _to_rgb(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array[..., :3]
