"""Scores of references in tiles as if they were new, from which a threshold is found. Each tile is encoded once.

A block of tiles of a normal picture is scored against all other tiles of all pictures, except those that share a pixel
with the block. To leave out whole pictures instead would leave out half of what two references show: new pictures, for
which nothing is left out, would score far below such a threshold (docs/choices.md). A single normal picture is scored
by altered copies of its tiles. An abnormal picture is scored by the tiles with its defect, against the other abnormal
pictures, or by altered copies if there is no other.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .augmentation import altered_copies, altered_masks
from .masks import patch_masks
from .modeling_ideal import IMAGES_AT_ONCE, IdealModel
from .reference_scores import NOT_JUDGED, ReferenceScores
from .references import IdealReferences
from .tile_encoder import TileEncoder, progress
from .tile_references import TiledReferences

Core = tuple[slice, slice]
WHOLE = (slice(None), slice(None))


def scores_as_new(
    encoder: TileEncoder, known: TiledReferences, equal_defects: Sequence[Sequence[int]]
) -> ReferenceScores:
    """Score the pictures of a reference set as if they were new.

    Args:
        encoder: the encoder of the tiles.
        known: the reference set.
        equal_defects: indices of equal abnormal pictures, a group each.
    """
    abnormal = _score_abnormal(encoder, known, equal_defects)
    marks = [mark for _, mark in abnormal if mark is not None]
    grids = {picture.grid.shape for picture in known.normal}
    return ReferenceScores(
        _same_number_of_tiles(_score_normal(encoder, known)),
        _same_number_of_tiles([scores for scores, _ in abnormal]),
        _same_number_of_tiles(marks) if marks else None,
        len(known.normal),
        grids.pop() if len(grids) == 1 else None,
        smoothing=encoder.model.config.patch_smoothing,
    )


def _score_normal(encoder: TileEncoder, known: TiledReferences) -> list[Tensor]:
    """Patch scores (T, h, w) of each normal picture, or of the altered copies of a single one."""
    if len(known.normal) > 1:
        return [_score_blocks(encoder, known, index) for index in range(len(known.normal))]
    picture = known.normal[0]
    tiles = list(picture.grid.cut(picture.picture))
    masks = [] if picture.mask is None else list(picture.grid.cut(picture.mask))
    cores = [picture.grid.core(place) for place in range(len(tiles))]
    scores, marked = _score_copies(encoder, known.encode(), tiles, masks, cores)
    return [part if marked is None else _without_marked(part, marked[index]) for index, part in enumerate(scores)]


def _score_abnormal(
    encoder: TileEncoder, known: TiledReferences, equal_defects: Sequence[Sequence[int]]
) -> list[tuple[Tensor, Tensor | None]]:
    """Patch scores and marks (t, h, w) of each abnormal picture, or of the altered copies of a single one."""
    if len(equal_defects) == 1:
        defect = known.defects[equal_defects[0][0]]
        cores = [WHOLE for _ in defect.tiles]
        copies, moved = _score_copies(encoder, known.encode(), defect.tiles, defect.masks, cores)
        return [(part, None if moved is None else moved[index]) for index, part in enumerate(copies)]
    found = []
    for group in equal_defects:
        defect, references = known.defects[group[0]], known.encode(without_defects=group)
        scores = torch.stack([_patch_scores(encoder.model, tile, references) for tile in defect.features])
        found.append((scores, None if defect.marked is None else defect.marked.cpu()))
    return found


def _score_copies(
    encoder: TileEncoder,
    references: IdealReferences,
    tiles: list[np.ndarray],
    masks: list[np.ndarray],
    cores: Sequence[Core],
) -> tuple[Tensor, Tensor | None]:
    """Patch scores (n, t, h, w) of n altered copies of tiles (H, W, 3), and what their masks (H, W) then mark."""
    patch_size = encoder.model.config.patch_size
    scores, marked = [], []
    for index, tile in enumerate(progress(tiles, len(tiles), "altered copies")):
        copies = altered_copies(encoder.pixels([tile]), patch_size)  # (n, 3, H, W)
        features = encoder.model.extract_features(copies, IMAGES_AT_ONCE)
        scores.append(torch.stack([_patch_scores(encoder.model, copy, references, cores[index]) for copy in features]))
        if masks:
            moved = altered_masks(torch.from_numpy(masks[index].copy())[None], patch_size)
            marked.append(patch_masks(moved, patch_size))
    return torch.stack(scores, 1), torch.stack(marked, 1) if marked else None


def _patch_scores(model: IdealModel, features: Tensor, references: IdealReferences, core: Core = WHOLE) -> Tensor:
    """Patch scores (h, w), not smoothed, of the features (h, w, C) of a tile; `NOT_JUDGED` outside its core."""
    scores = torch.full(features.shape[:2], NOT_JUDGED)
    found = model.score_features(features[core][None], references, (1, 1), smoothed=False)
    scores[core] = found.patch_scores[0].cpu()
    return scores


def _without_marked(scores: Tensor, marked: Tensor) -> Tensor:
    """Scores (..., h, w), `NOT_JUDGED` where a defect is `marked`."""
    return torch.where(marked.cpu(), NOT_JUDGED, scores)


def _score_blocks(encoder: TileEncoder, known: TiledReferences, index: int) -> Tensor:
    """Patch scores (T, h, w) of a normal picture, block by block."""
    picture = known.normal[index]
    if picture.features is None:
        raise RuntimeError("expected the features of pictures that are to be scored")
    others = [defect for defect in range(len(known.defects)) if defect not in picture.defects]
    scores = {}
    for block, touching in picture.grid.blocks():
        references = known.encode((index, touching), picture.defects if others else ())
        for place in block:
            core = picture.grid.core(place)
            scores[place] = _patch_scores(encoder.model, picture.features[place], references, core)
    merged = torch.stack([scores[place] for place in range(len(scores))])
    return merged if picture.mask is None else _without_marked(merged, encoder.patch_masks(picture.mask))


def _same_number_of_tiles(pictures: Sequence[Tensor]) -> Tensor:
    """Stack pictures (T, h, w) to (n, T, h, w), with the last tile of smaller ones repeated; (0, 0, 0, 0) for none."""
    if not pictures:
        return torch.zeros(0, 0, 0, 0)
    most = max(map(len, pictures))
    return torch.stack([torch.cat([part, part[-1:].expand(most - len(part), -1, -1)]) for part in pictures])
