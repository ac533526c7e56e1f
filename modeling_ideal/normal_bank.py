"""The normal patches of a reference set: all, or those that represent them; whole, or without some pictures.

With a limit, groups of a few pictures select their patches together, as many for each picture. So a picture that is
left out has chosen no patch of those that it is scored against once its own group has selected again; the time grows
with the number of pictures, not with its square; and groups follow from the contents of the pictures, so that their
order does not matter.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .anomalous_patches import unmarked_patches
from .normal_variation_eraser import unit
from .reference_pictures import ReferencePictures
from .representative_patches import representative_patches

TOGETHER = 8  # pictures that select their patches together: one alone selects too many odd ones, at 1/10 of all

Owner = tuple[str, int]  # kind and place of a picture


class Part(NamedTuple):
    """Normal patches of one picture."""

    owner: Owner
    patches: Tensor  # (P, C)


@dataclass(frozen=True)
class Block:
    """Normal patches of some pictures: all, or `each` times as many as there are pictures."""

    parts: Sequence[Part]
    each: int | None = None

    @cached_property
    def whole(self) -> Tensor:
        """The patches (P, C) of all its pictures."""
        return self.without(())

    def without(self, left_out: Collection[Owner]) -> Tensor:
        """The patches (P, C), selected without those of some pictures."""
        kept = [part for part in self.parts if part.owner not in left_out]
        if self.each is None or not kept:
            return kept[0].patches if len(kept) == 1 else torch.cat([self.parts[0].patches[:0], *_patches(kept)])
        patches = torch.cat(_patches(kept))
        return patches[representative_patches(patches, self.each * len({part.owner for part in kept}))]


class NormalBank:
    """The normal patches of a reference set, for encoding it without one picture after another.

    Leaving out a picture copies and scales only the patches that move.

    Args:
        pictures: a reference set with normal pictures.
        share_normals: whether the patches well outside the marked defects of abnormal pictures count as normal.

    Raises:
        ValueError: if fewer patches are to be kept than there are pictures.
    """

    def __init__(self, pictures: ReferencePictures, share_normals: bool) -> None:
        parts = list(_all_parts(pictures, share_normals))
        most = pictures.max_patches
        self._blocks = [Block([part]) for part in parts] if most is None else _limited(parts, pictures, most)
        self._held: list[tuple[int, int]] = []  # number and start of each block in the two tensors
        self._features = self._directions = torch.zeros(0)

    def without(self, kind: str = "normal", places: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
        """The normal patches (Q, C) without those of some pictures of one kind, and the same at length 1.

        They are valid until the next call.
        """
        if not self._held:
            size = sum(len(block.whole) for block in self._blocks)
            self._features = self._blocks[0].whole.new_empty(size, self._blocks[0].whole.shape[1])
            self._directions = torch.empty_like(self._features)
        left_out = {(kind, place) for place in places}
        held: list[tuple[int, int]] = []
        start = 0
        for number, block in enumerate(self._blocks):
            changed = any(part.owner in left_out for part in block.parts)
            patches = block.without(left_out) if changed else block.whole
            if not len(patches):
                continue
            here = (-1 if changed else number, start)
            stop = start + len(patches)
            if changed or self._held[len(held) : len(held) + 1] != [here]:
                self._features[start:stop] = patches
                self._directions[start:stop] = unit(patches)
            held.append(here)
            start = stop
        self._held = held
        return self._features[:start], self._directions[:start]


def _all_parts(pictures: ReferencePictures, share_normals: bool) -> Iterator[Part]:
    """All normal patches, in the order in which `IdealModel.encode_features` joins them."""
    normal, abnormal = pictures.normal, pictures.abnormal
    if normal is None:
        raise RuntimeError("expected normal pictures")
    for patches in (normal.features.flatten(1, 2), () if normal.turned is None else normal.turned):
        yield from (Part(("normal", place), part) for place, part in enumerate(patches))
    if share_normals and abnormal is not None and abnormal.marked is not None:
        for place, pair in enumerate(zip(abnormal.features, abnormal.marked, strict=True)):
            yield Part(("abnormal", place), unmarked_patches(*pair))


def _limited(parts: Sequence[Part], pictures: ReferencePictures, most: int) -> list[Block]:
    """Blocks of pictures with at most `most` patches in all, which do not depend on the order of the pictures."""
    hashes = {
        (kind, place): content
        for kind, group in (("normal", pictures.normal), ("abnormal", pictures.abnormal))
        for place, content in enumerate(() if group is None else group.hashes)
    }
    owners = sorted({part.owner for part in parts}, key=lambda owner: hashes[owner])
    each = most // len(owners)
    if not each:
        raise ValueError(
            f"max_patches: expected at least one for each of {len(owners)} references with normal patches, got {most}"
        )
    own: dict[Owner, list[Part]] = {owner: [] for owner in owners}
    for part in parts:
        own[part.owner].append(part)
    groups = [owners[start : start + TOGETHER] for start in range(0, len(owners), TOGETHER)]
    return [Block([part for owner in group for part in own[owner]], each) for group in groups]


def _patches(parts: Sequence[Part]) -> list[Tensor]:
    return [part.patches for part in parts]
