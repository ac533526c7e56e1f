"""A reference set in tiles: the normal patches to keep, and the tiles with a defect; encoded whole or without a part.

The patches of all tiles of all normal pictures are pooled, so parts need not be aligned. There would be far too many
(a picture of 4000 x 3000 pixels has 110,000), so each tile has an equal share of candidates, and the bank is a
selection of these such that no candidate is far from a selected one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .modeling_ideal import IdealModel
from .references import IdealReferences
from .representative_patches import representative_patches
from .tile_encoder import TileEncoder
from .tile_grid import TileGrid

DEFECT_TILES = 4  # kept per abnormal reference: a small defect is in at most this many overlapping tiles
CANDIDATES = 2  # for each patch of the bank: enough that the bank without a part of a picture is as large


@dataclass(frozen=True)
class NormalPicture:
    """A normal reference of T tiles, h x w patches with C channels each.

    Args:
        picture: (H, W, 3).
        grid: its tiles.
        candidates: (P, C) patches that may be selected for the bank.
        places: (P,) the tile of each candidate.
        features: (T, h, w, C) of all tiles; None if the picture is not to be scored, to save memory.
        mask: (H, W) bool, the defect, if it is an abnormal reference; else None.
        defects: indices of the abnormal references that show this very picture.
    """

    picture: np.ndarray
    grid: TileGrid
    candidates: Tensor
    places: Tensor
    features: Tensor | None
    mask: np.ndarray | None = None
    defects: Sequence[int] = ()


@dataclass(frozen=True)
class DefectPicture:
    """The t tiles of an abnormal reference that show its defect.

    Args:
        tiles: their pixels (H, W, 3).
        features: (t, h, w, C).
        masks: their masks (H, W), and empty if the defect is not marked.
        marked: (t, h, w) bool, or None if the defect is not marked.
    """

    tiles: list[np.ndarray]
    features: Tensor
    masks: list[np.ndarray]
    marked: Tensor | None


@dataclass(frozen=True)
class TiledReferences:
    """A reference set in tiles.

    Args:
        model: the model that encodes it.
        normal: different normal pictures.
        defects: abnormal pictures, which may be none.
        limit: number of normal patches to keep; None for all.
    """

    model: IdealModel
    normal: Sequence[NormalPicture]
    defects: Sequence[DefectPicture]
    limit: int | None

    def encode(
        self, without: tuple[int, Sequence[int]] | None = None, without_defects: Sequence[int] = ()
    ) -> IdealReferences:
        """Encode the set.

        Args:
            without: index of a normal picture, and its tiles that are left out.
            without_defects: indices of the abnormal pictures that are left out.
        """
        bank = self.bank if without is None else self._select(without)
        owners = [index for index in range(len(self.defects)) if index not in without_defects]
        if not owners:
            return IdealReferences([bank])
        chosen = [self.defects[index] for index in owners]
        marks = [defect.marked for defect in chosen if defect.marked is not None]
        references = self.model.encode_features(
            bank[None, None, None],
            torch.cat([defect.features for defect in chosen])[None],
            torch.cat(marks)[None] if marks else None,
        )
        owner = torch.tensor([index for index in owners for _ in self.defects[index].features], device=bank.device)
        return replace(
            references,
            # Normal patches of abnormal pictures may have joined the bank, which stays as large as it was to be.
            normal_features=[self._limited(features) for features in references.normal_features],
            abnormal_sources=[owner[sources] for sources in references.abnormal_sources],
        )

    @cached_property
    def bank(self) -> Tensor:
        """The normal patches (Q, C) to keep."""
        return self._select(None)

    def _select(self, without: tuple[int, Sequence[int]] | None) -> Tensor:
        """Select normal patches (Q, C)."""
        parts = []
        for index, picture in enumerate(self.normal):
            if without is None or index != without[0]:
                parts.append(picture.candidates)
            else:
                left_out = torch.isin(picture.places, torch.tensor(without[1], device=picture.places.device))
                parts.append(picture.candidates[~left_out])
        return self._limited(torch.cat(parts))

    def _limited(self, patches: Tensor) -> Tensor:
        """Select at most `limit` of patches (P, C) to stand for all."""
        return patches if self.limit is None else patches[representative_patches(patches, self.limit)]


def candidate_share(grids: Sequence[TileGrid], limit: int | None) -> int | None:
    """Number of candidates of each tile of all pictures; None for all patches."""
    return None if limit is None else max(1, CANDIDATES * limit // sum(map(len, grids)))


def read_normal(
    encoder: TileEncoder,
    picture: np.ndarray,
    share: int | None,
    keep_features: bool,
    name: str,
    mask: np.ndarray | None = None,
    defects: Sequence[int] = (),
) -> NormalPicture:
    """Encode a picture and select the candidates of each tile, `share` or all; see `NormalPicture`."""
    ignored = None if mask is None else encoder.patch_masks(mask)  # (T, h, w)
    candidates, places, kept = [], [], []
    grid = encoder.grid(picture)
    for place, features in enumerate(encoder.picture_features(picture, name)):
        patches = features.flatten(0, 1) if ignored is None else features[~ignored[place]]
        if share is not None and len(patches):
            patches = patches[representative_patches(patches, share)]
        candidates.append(patches)
        places += [place] * len(patches)
        if keep_features:
            kept.append(features)
    pool = torch.cat(candidates)
    return NormalPicture(
        picture,
        grid,
        pool,
        torch.tensor(places, device=pool.device),
        torch.stack(kept) if kept else None,
        mask,
        defects,
    )


def marked_defect(encoder: TileEncoder, picture: np.ndarray, mask: np.ndarray) -> DefectPicture:
    """The tiles of a picture (H, W, 3) that have most of its mask (H, W)."""
    masks, tiles = (list(encoder.grid(picture).cut(array)) for array in (mask, picture))  # views, no copies
    areas = np.array([part.sum() for part in masks])
    places = [place for place in np.argsort(-areas, kind="stable")[:DEFECT_TILES] if areas[place]]
    features = torch.stack(list(encoder.features(tiles[place] for place in places)))
    marked = encoder.patch_masks(mask)[places]
    return DefectPicture([tiles[place] for place in places], features, [masks[place] for place in places], marked)


def unmarked_defect(encoder: TileEncoder, picture: np.ndarray, normals: IdealReferences, name: str) -> DefectPicture:
    """The tile of a picture (H, W, 3) that scores highest against normal references."""
    highest, found = -1.0, None
    for place, features in enumerate(encoder.picture_features(picture, name)):
        score = encoder.model.score_features(features[None], normals, (1, 1)).scores.item()
        if score > highest:
            highest, found = score, (place, features)
    if found is None:
        raise ValueError(f"{name}: expected finite scores, got NaN")
    tiles = list(encoder.grid(picture).cut(picture))
    return DefectPicture([tiles[found[0]]], found[1][None], [], None)
