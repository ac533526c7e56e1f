"""References as a user gives them: pictures in every form, a file, or references to be extended."""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .calibration import DEFAULT_FALSE_ALARM, encode_pictures
from .image_inputs import (
    ADDRESSES,
    ImageInput,
    check_ordered,
    file_content,
    image_list,
    is_single_image,
    open_image,
)
from .input_checks import check_number
from .masks import MaskInput, mask_list
from .reference_pictures import ReferencePictures
from .reference_previews import make_previews
from .reference_reading import read_pictures
from .references import IdealReferences, processing_of
from .tiling import TiledDetector

PICTURES_AT_ONCE = 64  # normal ones, whose pixels are in memory together
_PLACE = re.compile(r"^(normal|abnormal)_refs(?:\[(\d+)\])?")  # how the processor begins a message


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
        keep_pictures: whether to keep a small picture of each image, for people. Default: True.
        max_patches: number of normal patches to keep for scoring, those that represent the others. Default: all; in
            tiles 2048. Tiles of pictures that are no larger than one keep all.
    """

    references: str | os.PathLike | IdealReferences | None = None
    normal: Sequence[ImageInput] | ImageInput | None = None
    abnormal: Sequence[ImageInput] | ImageInput | None = None
    masks: Sequence[MaskInput] | MaskInput | None = None
    types: Sequence[str] | str | None = None
    false_alarm: float | None = None
    tiling: bool | int | None = None
    keep_pictures: bool | None = None
    max_patches: int | None = None

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
        images, types = self._listed()
        if self.tiling is not None and not (isinstance(self.tiling, int) and self.tiling >= 0):
            raise ValueError(f"tiling: expected True, False or a number of pixels, got {self.tiling!r}")
        if self.tiling:
            references = self._tiled(model, processor, **images)
        else:
            if self.max_patches is not None and images["normal_refs"] is None:
                raise ValueError("max_patches: expected normal images with it, got none")
            pictures = replace(self._read(model, processor, images), max_patches=self.max_patches)
            references = replace(encode_pictures(model, pictures), processing=processing_of(processor))
        previews = None if self.keep_pictures is False else make_previews(*images.values())
        return replace(references, types=types, previews=previews)

    def extend(self, references: IdealReferences, model: Any, processor: Any) -> IdealReferences:
        """Add these images to references that the model has encoded: as if all were encoded together.

        Only the new images pass through the backbone. The masks, types and the false-alarm rate must be as they could
        have been given for all: for every abnormal image, or for none.
        """
        if references.pictures is None:
            raise ValueError(
                "references: expected some that keep the features of their pictures, to extend them, got "
                f"{'some in tiles' if references.tile_size else 'some of an earlier release or made from tensors'}, "
                "which do not; encode all pictures again, with the new ones"
            )
        images, types = self._listed()
        if images["normal_refs"] is None and images["abnormal_refs"] is None:
            raise ValueError("expected normal or abnormal images to add, got neither")
        if images["abnormal_refs"] is None:
            types = references.types
        elif references.num_abnormal and bool(types) != bool(references.types):
            expected = "the type of each new abnormal image" if references.types else "none"
            raise ValueError(f"types: expected {expected}, as with the references, got {types or 'none'}")
        else:
            types = [*references.types, *types]
        pictures = self._read(model, processor, images, references.pictures)
        previews = references.previews and references.previews.joined(make_previews(*images.values()))
        extended = replace(encode_pictures(model, pictures), types=types, previews=previews)
        return replace(extended, processing=processing_of(processor))

    def _read(
        self, model: Any, processor: Any, images: dict[str, Any], known: ReferencePictures | None = None
    ) -> ReferencePictures:
        """Read pictures, many normal ones in parts, so that only the features of all are in memory at a time."""
        normal, start = images["normal_refs"] or [], 0
        try:
            while len(normal) - start > PICTURES_AT_ONCE:
                part = normal[start : start + PICTURES_AT_ONCE]
                known = read_pictures(model, **processor(normal_refs=part), false_alarm=self.false_alarm, known=known)
                start += PICTURES_AT_ONCE
            images = {**images, "normal_refs": normal[start:] if start else images["normal_refs"]}
            return read_pictures(model, **processor(**images), false_alarm=self.false_alarm, known=known)
        except ValueError as error:
            raise ValueError(_PLACE.sub(lambda found: _as_given(found[1], found[2], start), str(error))) from error

    def _listed(self) -> tuple[dict[str, Any], list[str]]:
        """The images and masks in lists, by their names in the processor, and the types; all checked."""
        normal, abnormal = _reference_images(self.normal, "normal"), _reference_images(self.abnormal, "abnormal")
        masks = self.masks
        if masks is not None:
            if abnormal is None:
                raise ValueError("masks: expected abnormal images with them, got none")
            listed = mask_list(masks, len(abnormal))
            if len(listed) != len(abnormal):
                raise ValueError(f"masks: expected one for each of {len(abnormal)} abnormal images, got {len(listed)}")
            masks = [file_content(mask, f"masks[{index}]") for index, mask in enumerate(listed)]
        if not isinstance(self.types, (str, type(None))):
            check_ordered(self.types, "types", "a list of names")
        types = [self.types] if isinstance(self.types, str) else list(() if self.types is None else self.types)
        if not all(isinstance(name, str) for name in types):
            raise ValueError(f"types: expected names, got {types}")
        if types and len(types) != len(abnormal or ()):
            raise ValueError(f"types: expected one for each of {len(abnormal or ())} abnormal references, got {types}")
        check_number("false_alarm", self.false_alarm, ">= 0, below 0.5", lambda value: 0 <= value < 0.5)
        if not isinstance(self.keep_pictures, (bool, type(None))):
            raise ValueError(f"keep_pictures: expected True or False, got {self.keep_pictures!r}")
        if self.max_patches is not None and (type(self.max_patches) is not int or self.max_patches < 1):
            raise ValueError(f"max_patches: expected an integer >= 1, got {self.max_patches!r}")
        return {"normal_refs": normal, "abnormal_refs": abnormal, "masks": masks}, types

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
        if references.calibration is not None and references.top_fraction is None:
            # The file of an earlier release does not say it; made with another setting, it would be of no use.
            references = replace(references, top_fraction=model.config.top_fraction)
        return references.to(model.device)

    def _tiled(self, model: Any, processor: Any, normal_refs: Any, abnormal_refs: Any, masks: Any) -> IdealReferences:
        limit = {} if self.max_patches is None else {"max_patches": self.max_patches}
        detector = TiledDetector(model, processor, None if self.tiling is True else self.tiling, **limit)
        false_alarm = DEFAULT_FALSE_ALARM if self.false_alarm is None else self.false_alarm
        references = detector.encode_references(normal_refs or [], abnormal_refs or [], masks, false_alarm or None)
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
    listed = [_content(image, f"{name}[{index}]") for index, image in enumerate(image_list(images, name))]
    for index, image in enumerate(listed):
        if not is_single_image(image):
            raise ValueError(f"{name}[{index}]: expected an image, got {type(image).__name__}")
    return listed


def _as_given(kind: str, place: str | None, start: int) -> str:
    """What the user calls images, or one of them, whose place was counted from `start` if they are normal."""
    return kind if place is None else f"{kind}[{int(place) + start * (kind == 'normal')}]"


def _content(image: Any, name: str) -> Any:
    """An image that can be read more than once: a file object as bytes, one at an address as it is now."""
    return (
        open_image(image, name)
        if isinstance(image, str) and image.startswith(ADDRESSES)
        else file_content(image, name)
    )
