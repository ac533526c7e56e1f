"""Small pictures of the references, kept with them so that people can see what a new part is compared with."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .image_inputs import ADDRESSES, ImageInput, load_image, resize_image
from .masks import MaskInput, load_mask, resize_mask

LONGEST_SIDE = 448  # pixels: about 30 kB each
QUALITY = 85
KINDS = ("normal", "abnormal")
LONGEST_NAME = 200  # letters
PREFIX = "previews."  # of the names of tensors in a file

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Preview:
    """A small picture of one reference.

    Args:
        jpeg: the picture, as a JPEG file with sides of at most `LONGEST_SIDE`.
        size: height and width of the reference itself.
        name: the name of its file; empty if it was none.
        mask: where the defect is marked, as a PNG file of the small picture's size; None if it is not.
    """

    jpeg: bytes
    size: tuple[int, int]
    name: str = ""
    mask: bytes | None = None

    def picture(self) -> np.ndarray:
        """The small picture (H, W, 3), uint8."""
        return np.array(_opened(self.jpeg, "JPEG").convert("RGB"))

    def marked(self) -> np.ndarray | None:
        """The marked pixels (H, W) of the small picture, bool; None if there is no mask."""
        return None if self.mask is None else np.array(_opened(self.mask, "PNG").convert("L")) > 0


@dataclass(frozen=True)
class Previews:
    """Small pictures of all references of a set, in their order."""

    normal: list[Preview]
    abnormal: list[Preview]

    def joined(self, other: "Previews") -> "Previews":
        """These pictures and then others, kind by kind."""
        return Previews([*self.normal, *other.normal], [*self.abnormal, *other.abnormal])

    def header(self) -> dict[str, list[dict[str, Any]]]:
        """What a file's header says of the small pictures."""
        return {
            kind: [{"name": preview.name, "size": list(preview.size)} for preview in getattr(self, kind)]
            for kind in KINDS
        }

    def tensors(self) -> dict[str, Tensor]:
        """The files, as bytes, by the names of tensors in a references file."""
        pairs = [(kind, index, each) for kind in KINDS for index, each in enumerate(getattr(self, kind))]
        files = {f"{PREFIX}{kind}.{index}": each.jpeg for kind, index, each in pairs}
        files |= {f"{PREFIX}mask.{index}": each.mask for index, each in enumerate(self.abnormal) if each.mask}
        return {name: torch.frombuffer(bytearray(content), dtype=torch.uint8) for name, content in files.items()}

    @classmethod
    def from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Previews":
        """Put together what `header` and `tensors` gave, once `check_previews` has found nothing."""
        contents = {name: part.numpy().tobytes() for name, part in tensors.items() if name.startswith(PREFIX)}
        groups = {
            kind: [
                Preview(
                    contents[f"{PREFIX}{kind}.{index}"],
                    (entry["size"][0], entry["size"][1]),
                    entry["name"],
                    contents.get(f"{PREFIX}mask.{index}") if kind == "abnormal" else None,
                )
                for index, entry in enumerate(header[kind])
            ]
            for kind in KINDS
        }
        return cls(**groups)


def make_previews(
    normal: Sequence[ImageInput] | None, abnormal: Sequence[ImageInput] | None, masks: Sequence[MaskInput] | None
) -> Previews:
    """Make small pictures of references, which can be read, one after another."""
    marks: list[Any] = [None] * len(abnormal or ()) if masks is None else list(masks)
    return Previews(
        [make_preview(image, None, f"normal[{index}]") for index, image in enumerate(normal or ())],
        [
            make_preview(image, mask, f"abnormal[{index}]")
            for index, (image, mask) in enumerate(zip(abnormal or (), marks, strict=True))
        ],
    )


def make_preview(image: ImageInput, mask: MaskInput | None, name: str) -> Preview:
    """Make a small picture of a reference with its mask, called `name` in error messages."""
    array = load_image(image, name)
    size = (array.shape[0], array.shape[1])
    scale = min(1.0, LONGEST_SIDE / max(size))
    small = tuple(max(1, round(side * scale)) for side in size)
    pixels = np.rint(resize_image(array, (small[0], small[1])) * 255).astype(np.uint8)
    marked = None
    if mask is not None:
        drawn = resize_mask(load_mask(mask, size, f"{name}, mask"), (small[0], small[1]))
        marked = _file(Image.fromarray(drawn), "PNG", optimize=True)
    return Preview(_file(Image.fromarray(pixels), "JPEG", quality=QUALITY), size, _file_name(image), marked)


def is_previews_header(value: Any) -> bool:
    """Whether a value is what `Previews.header` makes."""
    return (
        isinstance(value, dict)
        and value.keys() == set(KINDS)
        and all(isinstance(part, list) and all(map(_is_entry, part)) for part in value.values())
    )


def check_previews(shapes: Shapes, header: Mapping[str, Any]) -> None:
    """Raise ValueError if a file's small pictures are not those that its header announces."""
    given = {name: shape for name, shape in shapes.items() if name.startswith(PREFIX)}
    announced = header["previews"] or {kind: [] for kind in KINDS}
    expected = {f"{PREFIX}{kind}.{index}" for kind in KINDS for index in range(len(announced[kind]))}
    masks = {f"{PREFIX}mask.{index}" for index in range(len(announced["abnormal"]))}
    if set(given) - masks != expected or any(len(shape) != 1 for shape in given.values()):
        raise ValueError(f"expected the bytes of the small pictures {sorted(expected)[:4]}, got {sorted(given)[:4]}")
    for kind in KINDS:
        if header["previews"] and len(announced[kind]) != header[f"num_{kind}"]:
            raise ValueError(f"previews: expected {header[f'num_{kind}']} {kind} ones, got {len(announced[kind])}")


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or len(value["name"]) > LONGEST_NAME:
        return False
    size = value.get("size")
    return isinstance(size, list) and len(size) == 2 and all(type(side) is int and side >= 1 for side in size)


def _file_name(image: Any) -> str:
    """The name of an image's file, without its folder; empty if it is none."""
    if not isinstance(image, (str, os.PathLike)) or str(image).startswith(ADDRESSES):
        return ""
    name = PurePath(image).name.encode("utf-8", "backslashreplace").decode()  # names may have bytes that are no text
    return name[:LONGEST_NAME]


def _file(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def _opened(content: bytes, form: str) -> Image.Image:
    """Open a small picture of a references file, which anybody may have made."""
    try:
        image = Image.open(BytesIO(content), formats=(form,))
        if max(image.size) <= LONGEST_SIDE:
            image.load()
            return image
        problem = f"{image.size[0]} x {image.size[1]} pixels"
    except Exception as error:  # Pillow's plug-ins raise OSError, SyntaxError, ValueError, struct.error, ...
        problem = f"{type(error).__name__}: {error}"
    raise ValueError(f"references: expected small pictures of at most {LONGEST_SIDE} pixels as {form}, got {problem}")
