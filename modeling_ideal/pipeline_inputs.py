"""Inputs of the pipeline: references in every form, and any number of images."""

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .calibration import encode_calibrated
from .image_inputs import ImageInput, file_content, image_list, is_single_image, load_image
from .input_checks import check_number
from .masks import MaskInput, load_area, mask_list, patch_masks, resize_mask
from .references import IdealReferences, processing_of
from .tiling import TiledDetector

DEFAULT_FALSE_ALARM = 0.05

Prepared = dict[str, Any]
Prepare = Callable[[Any, str], Prepared]  # takes an image, and its name for error messages


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Check that arguments have known names; the error suggests the nearest one."""
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1)
            suggestion = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ValueError(f"expected arguments among {', '.join(known)}, got unknown {name!r}{suggestion}")


@dataclass(frozen=True)
class ReferenceInputs:
    """References as the user gives them: either `references`, or images and how to encode them.

    Args:
        references: a references file, or an `IdealReferences`.
        normal: images of good parts.
        abnormal: images of defective parts.
        masks: the mask of the defect in each abnormal image.
        types: the type of the defect in each abnormal image.
        false_alarm: the requested false-alarm rate, for calibration; 0 for none. Default: 0.05 if there are normal
            images or masks; otherwise no calibration.
        tiling: cut images into tiles of this side in pixels, or of the processor's size with True.
    """

    references: str | os.PathLike | IdealReferences | None = None
    normal: Sequence[ImageInput] | ImageInput | None = None
    abnormal: Sequence[ImageInput] | ImageInput | None = None
    masks: Sequence[MaskInput] | MaskInput | None = None
    types: Sequence[str] | str | None = None
    false_alarm: float | None = None
    tiling: bool | int | None = None

    @classmethod
    def names(cls) -> list[str]:
        """The names of all fields."""
        return [field.name for field in fields(cls)]

    @classmethod
    def named(cls, references: Any = None, **pictures: Any) -> "ReferenceInputs":
        """Make the inputs from a user's arguments, whose names are checked."""
        check_names(pictures, cls.names())
        return cls(references, **pictures)

    def given(self) -> list[str]:
        """The names of the fields that are not None."""
        return [name for name in self.names() if getattr(self, name) is not None]

    def encode(self, model: Any, processor: Any) -> IdealReferences:
        """Encode or load one reference set for a model, on its device; what can be checked is checked before."""
        if self.references is not None:
            return self._known(model, processor)
        normal, abnormal = _reference_images(self.normal, "normal"), _reference_images(self.abnormal, "abnormal")
        masks = self.masks
        if masks is not None and abnormal is not None:
            masks = [
                file_content(mask, f"masks[{index}]") for index, mask in enumerate(mask_list(masks, len(abnormal)))
            ]
        types = [self.types] if isinstance(self.types, str) else list(() if self.types is None else self.types)
        if not all(isinstance(name, str) for name in types):
            raise ValueError(f"types: expected names, got {types}")
        if types and len(types) != len(abnormal or ()):
            raise ValueError(f"types: expected one for each of {len(abnormal or ())} abnormal references, got {types}")
        check_number("false_alarm", self.false_alarm, ">= 0, below 0.5", lambda value: 0 <= value < 0.5)
        if self.tiling is not None and not isinstance(self.tiling, int):
            raise ValueError(f"tiling: expected True, False or a number of pixels, got {self.tiling!r}")
        if self.tiling:
            return replace(self._tiled(model, processor, normal or [], abnormal or [], masks), types=types)
        images = processor(normal_refs=normal, abnormal_refs=abnormal, masks=masks)
        false_alarm = self.false_alarm
        if false_alarm is None and (normal is not None or masks is not None):
            false_alarm = DEFAULT_FALSE_ALARM
        if false_alarm:
            references = encode_calibrated(model, **images, false_alarm=false_alarm)
        else:
            references = model.encode_references(**images)
        return replace(references, types=types, processing=processing_of(processor))

    def _known(self, model: Any, processor: Any) -> IdealReferences:
        if len(self.given()) > 1:
            raise ValueError(f"expected references, or images to encode, got both: {', '.join(self.given())}")
        references: Any = self.references
        if isinstance(references, (str, os.PathLike)):
            references = IdealReferences.load(references)
        # Not isinstance, because shipped files may be loaded as more than one module.
        if not hasattr(references, "fingerprint") or len(references) != 1:
            raise ValueError(f"references: expected a file or an IdealReferences of one set, got {references!r}")
        check_usable(references, model, processor)
        return references.to(model.device)

    def _tiled(self, model: Any, processor: Any, normal: list, abnormal: list, masks: Any) -> IdealReferences:
        detector = TiledDetector(model, processor, None if self.tiling is True else self.tiling)
        false_alarm = DEFAULT_FALSE_ALARM if self.false_alarm is None else self.false_alarm
        references = detector.encode_references(normal, abnormal, masks, false_alarm or None)
        return replace(references, processing=processing_of(detector.processor))


def check_usable(references: IdealReferences, model: Any, processor: Any) -> None:
    """Raise ValueError if references were encoded by another model or with other settings of the processor."""
    model.check_encoded(references)
    if references.tile_size is not None:
        processor = TiledDetector(model, processor, references.tile_size).processor
    references.check_processing(processor)


def _reference_images(images: Any, name: str) -> list | None:
    """Bring the images of one kind to a list, with file objects as bytes; None stays None."""
    if images is None:
        return None
    listed = [file_content(image, f"{name}[{index}]") for index, image in enumerate(image_list(images))]
    for index, image in enumerate(listed):
        if not is_single_image(image):
            raise ValueError(f"{name}[{index}]: expected an image, got {type(image).__name__}")
    return listed


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
