"""What references keep of their pictures, so that others can join them later without encoding these again.

Encoding and calibration need the features of every picture, the marked patches, which pictures are equal, and, where
there is only one picture of a kind, the features of its altered copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

KINDS = ("normal", "abnormal")
MOST_SCORED = 100  # pictures of a kind that calibration scores as new: 99 support a false-alarm rate of 1 %
TENSORS = ("features", "turned", "copies", "marked", "marked_copies")  # of each kind, by their names in a file

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class PictureGroup:
    """The normal or the abnormal pictures of a reference set: h x w patches with C channels each.

    Args:
        features: (L, h, w, C) of the pictures.
        hashes: a hash of the content of each picture; equal pictures are not new to each other.
        marked: (L, h, w) bool, the patches with a defect; None for normal pictures, and if it is not marked.
        turned: (L, P, C) patches of the pictures in other poses; None for abnormal pictures, and for a model that uses
            none.
        copies: (n, h, w, C) features of altered copies, if all pictures are equal and calibration was wanted.
        marked_copies: (n, h, w) bool, the patches with a defect in the copies; None without `marked` or `copies`.
    """

    features: Tensor
    hashes: list[str]
    marked: Tensor | None = None
    turned: Tensor | None = None
    copies: Tensor | None = None
    marked_copies: Tensor | None = None

    def distinct(self) -> list[list[int]]:
        """The indices of equal pictures, a group each."""
        groups: dict[str, list[int]] = {}
        for index, content in enumerate(self.hashes):
            groups.setdefault(content, []).append(index)
        return list(groups.values())

    def scored(self) -> list[list[int]]:
        """The groups of equal pictures of which calibration scores one as if it were new: at most `MOST_SCORED`.

        Of more pictures it is those with the lowest hashes: as good as drawn at random, and the same in any order.
        """
        drawn = set(sorted(set(self.hashes))[:MOST_SCORED])
        return [equal for equal in self.distinct() if self.hashes[equal[0]] in drawn]

    def good_patches(self) -> list[Tensor]:
        """The patches (P, C) of each picture that are not marked; all of them if those of a picture all are."""
        if self.marked is None:
            return [picture.flatten(0, 1) for picture in self.features]
        pairs = zip(self.features, self.marked, strict=True)
        return [picture.flatten(0, 1) if marked.all() else picture[~marked] for picture, marked in pairs]

    def joined(self, other: "PictureGroup", kind: str) -> "PictureGroup":
        """These pictures and then others of the same kind, which is named in error messages."""
        if self.features.shape[1:] != other.features.shape[1:]:
            raise ValueError(
                f"{kind}: expected pictures that become {tuple(self.features.shape[1:3])} patches like those of the "
                f"references, got {tuple(other.features.shape[1:3])}"
            )
        if (self.marked is None) != (other.marked is None):
            known, new = ("not marked", "masks") if self.marked is None else ("marked", "none")
            raise ValueError(
                f"masks: expected {'none' if self.marked is None else 'one for each new abnormal picture'}, because "
                f"the defects of the references are {known}, got {new}"
            )
        features = torch.cat([self.features, other.features])
        pairs = ((self.marked, other.marked), (self.turned, other.turned))
        marked, turned = (None if old is None or new is None else torch.cat([old, new]) for old, new in pairs)
        together = PictureGroup(features, [*self.hashes, *other.hashes], marked, turned)
        if len(together.distinct()) > 1:
            return together
        return replace(together, copies=self.copies, marked_copies=self.marked_copies)

    def without(self, indices: list[int]) -> "PictureGroup | None":
        """The pictures without some of them; None if none is left."""
        kept = [index for index in range(len(self.hashes)) if index not in indices]
        if not kept:
            return None
        marked, turned = (None if part is None else part[kept] for part in (self.marked, self.turned))
        return PictureGroup(self.features[kept], [self.hashes[index] for index in kept], marked, turned)

    def to(self, device: torch.device | str) -> "PictureGroup":
        """The group with its tensors on a device."""
        tensors = {name: getattr(self, name) for name in TENSORS}
        moved: dict[str, Any] = {name: part if part is None else part.to(device) for name, part in tensors.items()}
        return replace(self, **moved)


@dataclass(frozen=True)
class ReferencePictures:
    """The pictures of a reference set, as features.

    Args:
        normal: the normal pictures; None for none.
        abnormal: the abnormal pictures; None for none, but not both.
        false_alarm: the false-alarm rate that was asked for; 0 for no calibration; None for the default, where the
            pictures allow a calibration.
        max_patches: number of normal patches to keep for scoring, see `NormalBank`; None for all.
    """

    normal: PictureGroup | None
    abnormal: PictureGroup | None
    false_alarm: float | None = None
    max_patches: int | None = None

    @property
    def tell_normal(self) -> bool:
        """Whether the pictures say what is normal, which calibration needs."""
        return self.normal is not None or (self.abnormal is not None and self.abnormal.marked is not None)

    def to(self, device: torch.device | str) -> "ReferencePictures":
        """The pictures with their tensors on a device."""
        normal, abnormal = (group and group.to(device) for group in (self.normal, self.abnormal))
        return replace(self, normal=normal, abnormal=abnormal)

    def header(self) -> dict[str, Any]:
        """What a file's header says of the pictures."""
        groups = {kind: group for kind in KINDS if (group := getattr(self, kind)) is not None}
        return {
            "false_alarm": self.false_alarm,
            "max_patches": self.max_patches,
            "hashes": {kind: group.hashes for kind, group in groups.items()},
            "patches": {kind: list(group.features.shape[1:3]) for kind, group in groups.items()},
        }

    def tensors(self, bank: Tensor) -> dict[str, Tensor]:
        """All tensors, by their names in a file; the normal features only if the `bank` (Q, C) does not begin so."""
        tensors = {
            f"pictures.{kind}.{name}": part
            for kind in KINDS
            for name in TENSORS
            if (part := getattr(getattr(self, kind), name, None)) is not None
        }
        if self.normal is not None:
            patches = self.normal.features.flatten(0, 2)
            if torch.equal(bank[: len(patches)].to(patches.device), patches):
                del tensors["pictures.normal.features"]
        return tensors

    @classmethod
    def from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "ReferencePictures":
        """Put together what `header` and `tensors` gave, once `check_pictures` has found nothing."""
        groups: dict[str, PictureGroup] = {}
        for kind, hashes in header["hashes"].items():
            parts = {name: tensors.get(f"pictures.{kind}.{name}") for name in TENSORS}
            if parts["features"] is None:
                count, bank = len(hashes), tensors["normal_features.0"]
                height, width = header["patches"][kind]
                parts["features"] = bank[: count * height * width].view(count, height, width, -1)
            groups[kind] = PictureGroup(hashes=hashes, **parts)  # type: ignore[arg-type]
        limit = header.get("max_patches")  # which earlier releases did not know
        return cls(groups.get("normal"), groups.get("abnormal"), header["false_alarm"], limit)


def check_different(normal: Sequence[str], abnormal: Sequence[str]) -> None:
    """Raise ValueError if a picture, given by a hash of its content, is both a normal and an abnormal reference."""
    for index, content in enumerate(abnormal):
        if content in normal:
            raise ValueError(
                "expected different pictures as normal and abnormal references, got one that is both: "
                f"normal[{normal.index(content)}] and abnormal[{index}]"
            )


def is_pictures_header(value: Any) -> bool:
    """Whether a value is what `ReferencePictures.header` makes."""
    if not isinstance(value, dict):
        return False
    rate, hashes, patches, most = (value.get(name) for name in ("false_alarm", "hashes", "patches", "max_patches"))
    return (
        (rate is None or (isinstance(rate, (int, float)) and not isinstance(rate, bool) and 0 <= rate < 0.5))
        and (most is None or (type(most) is int and most >= 1))
        and isinstance(hashes, dict)
        and isinstance(patches, dict)
        and bool(hashes)
        and hashes.keys() == patches.keys()
        and set(hashes) <= set(KINDS)
        and all(isinstance(part, list) and all(isinstance(text, str) for text in part) for part in hashes.values())
        and all(_is_size(size) for size in patches.values())
    )


def check_pictures(shapes: Shapes, header: Mapping[str, Any]) -> None:
    """Raise ValueError if the shapes of a file's picture tensors contradict its header or each other.

    Args:
        shapes: of all tensors of the file, whose other ones have been checked.
        header: the header of the file.
    """
    given = {name: shape for name, shape in shapes.items() if name.startswith("pictures.")}
    pictures = header["pictures"]
    unknown = set(given) - {f"pictures.{kind}.{name}" for kind in KINDS for name in TENSORS}
    if pictures is None or unknown:
        if given:
            raise ValueError(f"expected pictures in the header for the tensors {sorted(given)[:4]}, got none")
        return
    patches, channels = shapes["normal_features.0"]
    for kind in KINDS:
        count, size = len(pictures["hashes"].get(kind, ())), pictures["patches"].get(kind, (0, 0))
        if count != header[f"num_{kind}"] or header["num_sets"] != 1:
            raise ValueError(f"pictures: expected {header[f'num_{kind}']} {kind} ones of one set, got {count}")
        copies = given.get(f"pictures.{kind}.copies", ())[:1]
        expected = {
            "features": (count, *size, channels),
            "turned": (count, size[0] * size[1], channels),
            "copies": (*copies, *size, channels),
            "marked": (count, *size),
            "marked_copies": (*copies, *size),
        }
        for name, shape in expected.items():
            if given.get(f"pictures.{kind}.{name}", shape) != shape or (copies and not copies[0]):
                got = given.get(f"pictures.{kind}.{name}")
                raise ValueError(f"pictures.{kind}.{name}: expected {shape}, got {got}")
        in_bank = kind == "normal" and count * size[0] * size[1] <= patches
        if count and f"pictures.{kind}.features" not in given and not in_bank:
            raise ValueError(f"pictures.{kind}.features: expected {expected['features']}, got none")


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(side) is int and side >= 1 for side in value)
