"""Inputs of the pipeline: references in every form, and any number of images."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from .calibration import encode_calibrated
from .image_inputs import ImageInput, image_list
from .masks import MaskInput, mask_list
from .references import IdealReferences
from .tiling import TiledDetector

DEFAULT_FALSE_ALARM = 0.05


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
            images or masks, in tiles if there are at least two normal images; otherwise no calibration.
        tiling: cut images into tiles of this side in pixels, or of the processor's size with True.
    """

    references: str | os.PathLike | IdealReferences | None = None
    normal: Sequence[ImageInput] | ImageInput | None = None
    abnormal: Sequence[ImageInput] | ImageInput | None = None
    masks: Sequence[MaskInput] | MaskInput | None = None
    types: Sequence[str] | str | None = None
    false_alarm: float | None = None
    tiling: bool | int | None = None

    def given(self) -> list[str]:
        """The names of the fields that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def encode(self, model: Any, processor: Any) -> IdealReferences:
        """Encode or load one reference set for a model, on its device."""
        if self.references is not None:
            return self._known(model)
        if self.tiling:
            return self._tiled(model, processor)
        images = processor(normal_refs=self.normal, abnormal_refs=self.abnormal, masks=self.masks)
        false_alarm = self.false_alarm
        if false_alarm is None and (self.normal is not None or self.masks is not None):
            false_alarm = DEFAULT_FALSE_ALARM
        if false_alarm:
            references = encode_calibrated(model, **images, false_alarm=false_alarm)
        else:
            references = model.encode_references(**images)
        types = [self.types] if isinstance(self.types, str) else list(self.types or ())
        return replace(references, types=types)

    def _known(self, model: Any) -> IdealReferences:
        if len(self.given()) > 1:
            raise ValueError(f"expected references, or images to encode, got both: {', '.join(self.given())}")
        references: Any = self.references
        if isinstance(references, (str, os.PathLike)):
            references = IdealReferences.load(references)
        # Not isinstance, because shipped files may be loaded as more than one module.
        if not hasattr(references, "fingerprint") or len(references) != 1:
            raise ValueError(f"references: expected a file or an IdealReferences of one set, got {references!r}")
        model.check_encoded(references)
        return references.to(model.device)

    def _tiled(self, model: Any, processor: Any) -> IdealReferences:
        if self.types is not None:
            raise ValueError(f"tiling: expected no types with it, got {self.types!r}")
        detector = TiledDetector(model, processor, None if self.tiling is True else self.tiling)
        normal, abnormal = ([] if group is None else image_list(group) for group in (self.normal, self.abnormal))
        masks = None if self.masks is None else mask_list(self.masks, len(abnormal))
        references = detector.encode_references(normal, abnormal, masks)
        false_alarm = self.false_alarm
        if false_alarm is None and len(normal) > 1:
            false_alarm = DEFAULT_FALSE_ALARM
        if not false_alarm:
            return references
        return replace(references, calibration=detector.calibrate(normal, abnormal, masks, false_alarm))


Prepared = dict[str, Any]
Prepare = Callable[[Any, str], Prepared]  # takes an image, and its name for error messages


def is_many(inputs: object) -> bool:
    """Whether inputs are a collection of images: a sequence, a stack, a generator or a data set."""
    if isinstance(inputs, (str, bytes, Mapping)):
        return False
    if hasattr(inputs, "ndim"):  # an array or a tensor
        return inputs.ndim == 4
    return isinstance(inputs, (Iterable, Dataset))


def read_batches(inputs: Any, prepare: Prepare, batch_size: int, num_workers: int) -> Iterator[list[Prepared]]:
    """Apply `prepare` to every image, `batch_size` at a time; the result of a failure is `{"error": ...}`.

    Args:
        inputs: a collection of images, see `is_many`. Sequences, stacks and data sets with an index are read by
            `num_workers` processes; generators are read in order, by one process at most.
        prepare: raises ValueError for an image that it cannot use.
        batch_size: number of images per batch, at least 1.
        num_workers: number of processes; 0 reads in this process.
    """
    for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}")
    source: Dataset
    if isinstance(inputs, Iterable) and not isinstance(inputs, Sequence) and not hasattr(inputs, "ndim"):
        source, num_workers = _Ordered(inputs, prepare), min(num_workers, 1)
    else:
        source = _Indexed(inputs, prepare)
    return iter(DataLoader(source, batch_size, num_workers=num_workers, collate_fn=list))


class _Indexed(Dataset):
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


class _Ordered(IterableDataset):
    def __init__(self, inputs: Iterable, prepare: Prepare) -> None:
        self.inputs, self.prepare = inputs, prepare

    def __iter__(self) -> Iterator[Prepared]:
        for index, picture in enumerate(self.inputs):
            yield _prepared(self.prepare, picture, f"images[{index}]")


def _prepared(prepare: Prepare, picture: Any, name: str) -> Prepared:
    try:
        return prepare(picture, name)
    except ValueError as error:
        return {"error": str(error)}
