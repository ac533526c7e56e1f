"""Inputs of the pipeline: any number of images, read and prepared."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .image_inputs import ImageInput, file_content, is_single_image, load_image
from .masks import MaskInput, load_area, patch_masks, resize_mask

Prepared = dict[str, Any]
Prepare = Callable[[Any, str], Prepared]  # takes an image, and its name for error messages


@dataclass(frozen=True)
class Preparation:
    """Prepares images for the model: all that a process which reads images needs, and small enough to send there.

    Args:
        processor: the image processor.
        patch_size: height and width of a patch.
        ignore_mask: a mask, in any form, of what to ignore in every image.
        keep_picture: whether to keep the image as it was read.
        tiled: whether the image will be cut into tiles, and so keeps its size.
    """

    processor: Any
    patch_size: tuple[int, int]
    ignore_mask: MaskInput | None = None
    keep_picture: bool = False
    tiled: bool = False

    def __call__(self, image: ImageInput, name: str) -> Prepared:
        """Prepare an image, called `name` in error messages; ValueError if it cannot be used."""
        picture = load_image(image, name)  # (H, W, 3)
        kept: Prepared = {"picture": picture} if self.keep_picture else {}
        size = (picture.shape[0], picture.shape[1])
        if self.tiled:
            prepared = {"name": name, "pixels": picture, **kept}
            if self.ignore_mask is not None:
                ignored = load_area(self.ignore_mask, size, f"{name}, ignore_mask")
                prepared["ignored"] = torch.from_numpy(np.array(ignored))
            return prepared
        query = self.processor(query=picture)["query"][0]
        seen = (query.shape[1], query.shape[2])
        prepared = {"name": name, "query": query, "size": size, "seen": seen, **kept}
        if self.ignore_mask is not None:
            prepared["ignored"], prepared["counted"] = read_ignored(
                self.ignore_mask, size, seen, self.patch_size, f"{name}, ignore_mask"
            )
        return prepared


def read_ignored(
    mask: MaskInput, size: tuple[int, int], seen: tuple[int, int], patch_size: tuple[int, int], name: str
) -> tuple[Tensor, Tensor]:
    """Load a mask of pixels to ignore, and find the patches that count because they have no such pixel.

    Args:
        mask: a mask in any form.
        size: height and width (H, W) of the image.
        seen: height and width of the image after resizing.
        patch_size: height and width of a patch.
        name: what to call the mask in error messages.

    Returns:
        The ignored pixels, bool (H, W), and the patches that count, bool (h, w).
    """
    ignored = load_area(mask, size, name)
    resized = torch.from_numpy(resize_mask(ignored, seen))
    counted = ~patch_masks(resized, patch_size)
    if not counted.any():
        raise ValueError(f"{name}: expected some patch outside it, got none of {counted.numel()}")
    return torch.from_numpy(np.array(ignored)), counted


def is_many(inputs: object) -> bool:
    """Whether inputs are a collection of images: a sequence, a stack, a generator or a data set."""
    if hasattr(inputs, "ndim"):  # an array or a tensor
        return inputs.ndim == 4
    return isinstance(inputs, (Iterable, Dataset)) and not isinstance(inputs, Mapping) and not is_single_image(inputs)


def read_batches(inputs: Any, prepare: Prepare, batch_size: int, num_workers: int) -> Iterator[list[Prepared]]:
    """Apply `prepare` to every image, `batch_size` at a time; the result of a failure is `{"error": ...}`.

    Every kind of collection is divided among the workers, batch by batch. The images of a list, a stack or an iterator
    are taken from it in this process, one after another, and sent to the workers, which read and prepare them; an
    iterator is read ahead by two batches per worker. Data sets and other sequences are indexed by the workers.

    Args:
        inputs: a collection of images, see `is_many`.
        prepare: raises ValueError for an image that it cannot use; is sent to the workers.
        batch_size: number of images per batch, at least 1.
        num_workers: number of processes; 0 reads in this process.
    """
    for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}")
    if isinstance(inputs, Iterable) and (not isinstance(inputs, Sequence) or isinstance(inputs, (list, tuple))):
        taken = _sendable(inputs) if num_workers else enumerate(inputs)
        loader = DataLoader(_Taken(prepare), batch_size, sampler=taken, num_workers=num_workers, collate_fn=list)
    else:
        loader = DataLoader(_Indexed(inputs, prepare), batch_size, num_workers=num_workers, collate_fn=list)
    return iter(loader)


def _sendable(images: Iterable) -> Iterator[tuple[int, Any]]:
    """Number images, and bring each to a form that any process can receive; a ValueError if it cannot be read.

    An image that failed on its way to a worker would leave the worker waiting for ever.
    """
    for index, image in enumerate(images):
        name = f"images[{index}]"
        try:
            image = file_content(image, name)
            if isinstance(image, (str, os.PathLike)):
                yield index, os.fspath(image)
            elif isinstance(image, (bytes, bytearray, memoryview)):
                yield index, bytes(image)
            else:
                yield index, load_image(image, name)
        except ValueError as error:
            yield index, error


class _Taken(Dataset):
    """Prepares images that come with their index, in place of an index."""

    def __init__(self, prepare: Prepare) -> None:
        self.prepare = prepare

    def __getitem__(self, item: tuple[int, Any]) -> Prepared:
        index, image = item
        return (
            {"error": str(image)}
            if isinstance(image, ValueError)
            else _prepared(self.prepare, image, f"images[{index}]")
        )


class _Indexed(Dataset):
    """Takes images from a collection by their index, and prepares them."""

    def __init__(self, inputs: Any, prepare: Prepare) -> None:
        self.inputs, self.prepare = inputs, prepare

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Prepared:
        name = f"images[{index}]"
        try:
            picture = self.inputs[index]
        except Exception as error:  # a data set that decodes images may raise anything
            return {"error": f"{name}: expected an image, got {type(error).__name__}: {error}"}
        return _prepared(self.prepare, picture, name)


def _prepared(prepare: Prepare, picture: Any, name: str) -> Prepared:
    try:
        return prepare(picture, name)
    except ValueError as error:
        return {"error": str(error)}
