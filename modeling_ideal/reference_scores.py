"""Scores of references as if they were new, kept so that a threshold can be found again without the pictures."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from .input_checks import check_number
from .normal_variation_eraser import unit
from .scoring import cosine_distance, image_scores, smooth_patches
from .threshold import DEFAULT_PRIOR, LOWEST_SCORE, Calibration, ScorePrior

LEAST_DIVERSITY = 0.05  # of products of the source, carpet has the least, 0.1
NOT_JUDGED = -1.0  # in place of the score of a patch of a tile that another tile judges, or that shows a defect
LEVEL_FRACTION = 0.01  # the top fraction of the scores that the level of a prior is for


@dataclass(frozen=True)
class ReferenceScores:
    """Patch scores of a reference set before smoothing, each picture scored as if it were new; always on the CPU.

    A picture is h x w patches, or T tiles (T, h, w), whose highest score is its own. A picture with fewer tiles than
    others has some of them twice.

    Args:
        normal: (n, h, w) of normal references, or of altered copies of a single one; n is 0 if there are none, and the
            patches of the abnormal references outside their marks are taken as normal.
        abnormal: (m, h', w') of abnormal references, or of altered copies of a single one; m may be 0.
        marked: (m, h', w') bool, their defects; None if the defects were not marked by the user.
        num_normal: number of different pictures that tell what is normal. There are more maps if they are of altered
            copies of a single one, and fewer if only some of very many were scored, each against all others.
        grid: rows and columns of the T tiles of every normal picture; None without tiles, or if pictures differ.
        diversity: how much the patches of a normal picture differ, see the function; None if it is not known.
        smoothing: standard deviation, in patches, of the Gaussian that image scores are smoothed with; None if the
            scores have been smoothed already, in a file of an earlier release.
    """

    normal: Tensor
    abnormal: Tensor
    marked: Tensor | None
    num_normal: int
    grid: tuple[int, int] | None = None
    diversity: float | None = None
    smoothing: float | None = 0.0

    def calibrate(
        self,
        top_fraction: float,
        false_alarm: float,
        prior: ScorePrior = DEFAULT_PRIOR,
        counted: Tensor | None = None,
    ) -> Calibration:
        """Find the threshold for image scores that are made in a certain way.

        Args:
            top_fraction: share of the highest patch scores whose mean is the image score.
            false_alarm: the requested false-alarm rate.
            prior: what is known of the scores of other products.
            counted: (h, w), or (rows, columns, h, w) in tiles, bool: the patches that affect the image score; None for
                all.
        """
        check_number("top_fraction", top_fraction, "> 0, at most 1", lambda value: 0 < value <= 1)
        if counted is not None:
            if self.smoothing is None:
                raise ValueError(
                    "references: expected ones of this release, to find the threshold for the patches that are not "
                    "ignored, got ones of an earlier release; encode the references again"
                )
            shapes = self._picture_shapes()
            if shapes != {tuple(counted.shape)}:
                raise ValueError(
                    f"expected an image of the references' size, {' and '.join(map(str, sorted(shapes)))} patches, to "
                    f"calibrate the patches that are not ignored, got {tuple(counted.shape)}"
                )
            counted = counted.flatten(0, -3) if self.tiled else counted  # (T, h, w)
        normal = self._normal_scores(top_fraction, counted)
        if not normal:
            raise ValueError("expected some normal patch that is not ignored, to calibrate, got none")
        abnormal = list(self._abnormal_scores(top_fraction, counted))
        level = self._level(normal, prior)
        return Calibration.from_scores(normal, abnormal, false_alarm, self.stand_for(normal), prior, level)

    def stand_for(self, scores: Sequence[float]) -> int:
        """The number of normal references that scores of `normal` stand for, as `Calibration.from_scores` takes it."""
        if (len(self.normal) or len(self.abnormal)) < self.num_normal:
            return self.num_normal
        return min(self.num_normal, len(scores))  # pictures that are ignored altogether do not count

    def _normal_scores(self, top_fraction: float, counted: Tensor | None = None) -> list[float]:
        return [_picture_score(tiles, top_fraction) for tiles in self._normal_patches(counted) if tiles]

    def _level(self, scores: Sequence[float], prior: ScorePrior) -> float | None:
        """The diversity as a score: relative to `scores` as it is to those that the prior was found with."""
        if self.diversity is None:
            return None
        usual = self._normal_scores(LEVEL_FRACTION)
        level = self.diversity * geometric_mean(scores) / geometric_mean(usual)
        if not len(self.normal):
            return level * math.exp(prior.without_normal)
        return level if len(self.abnormal) else level * math.exp(prior.alone)

    def typical_scores(self) -> list[float]:
        """The median score of all normal patches of each picture, which a small defect does not move."""
        return [torch.cat(tiles).median().item() for tiles in self._normal_patches(None, judged=True) if tiles]

    def _smoothed(self, scores: Tensor, counted: Tensor | None) -> Tensor:
        """Smooth the scores (..., h, w) of a picture as the model does; 0 for patches that are not judged."""
        tiles = scores.view(-1, *scores.shape[-2:])
        here = _counted(scores, counted).view_as(tiles)
        smoothed = torch.zeros_like(tiles)
        for tile, count, result in zip(tiles, here, smoothed, strict=True):
            judged = tile != NOT_JUDGED
            if not judged.any():
                continue
            sides = (judged.any(1).nonzero()[:, 0], judged.any(0).nonzero()[:, 0])
            core = tuple(slice(int(places[0]), int(places[-1]) + 1) for places in sides)
            weights = (judged & count)[core][None]
            result[core] = smooth_patches(tile[core][None], self.smoothing or 0.0, weights)[0]
        return smoothed.view_as(scores)

    @property
    def tiled(self) -> bool:
        """Whether pictures are in tiles."""
        return self.normal.ndim == 4

    @property
    def several_tiles(self) -> bool:
        """Whether any picture is larger than a tile."""
        return self.tiled and self.normal.shape[1] > 1

    def _picture_shapes(self) -> set[tuple[int, ...]]:
        """The shapes of the pictures in patches: (h, w), or (rows, columns, h, w) in tiles."""
        if not self.tiled:
            return {tuple(group.shape[1:]) for group in (self.normal, self.abnormal) if len(group)}
        if self.grid is None:
            raise ValueError(
                "references: expected normal pictures of one size, to calibrate the patches of tiles that are not "
                "ignored, got several sizes"
            )
        return {(*self.grid, *self.normal.shape[2:])}

    def _normal_patches(self, counted: Tensor | None, judged: bool = False) -> Iterator[list[Tensor]]:
        """Scores of the normal patches that count, (p,) for each tile of each picture; only of `judged` ones if so."""
        if len(self.normal):
            pictures, good = self.normal, torch.ones_like(self.normal, dtype=torch.bool)
        elif self.marked is not None:
            pictures, good = self.abnormal, ~self.marked
        else:
            return
        for scores, here in zip(pictures, good, strict=True):
            here = here & _counted(scores, counted)
            yield _tiles(self._smoothed(scores, counted), here & (scores != NOT_JUDGED) if judged else here)

    def _abnormal_scores(self, top_fraction: float, counted: Tensor | None) -> Iterator[float]:
        """Image scores of the abnormal references, at most what the patches of a marked defect alone would give.

        There is none for a defect that is ignored, or that an altered copy has moved out of the image. In tiles there
        is none if anything is ignored, because only the tiles with a defect are kept, without their places.
        """
        if self.tiled and counted is not None:
            return
        for index, scores in enumerate(self.abnormal):
            here = _counted(scores, counted)
            scores = self._smoothed(scores, counted)
            patches = _tiles(scores, here)
            if self.marked is None:
                yield _picture_score(patches, top_fraction)
            elif defects := _tiles(scores, here & self.marked[index]):
                counts = max(1, int(len(patches[0]) * top_fraction))
                found = max(part.topk(min(counts, len(part))).values.mean().item() for part in defects)
                yield min(_picture_score(patches, top_fraction), found)


def diversity(pictures: Iterable[Tensor]) -> float:
    """Geometric mean over pictures, given as patches (P, C), of the mean distance d_cos of any two of their patches.

    The mean cosine of all pairs is the squared length of the mean direction. Plain surfaces have a least value: their
    patches hardly differ, but those of the next part may.
    """
    means = [cosine_distance(unit(patches).mean(0).square().sum()).item() for patches in pictures]
    return max(geometric_mean(means), LEAST_DIVERSITY)


def geometric_mean(scores: Sequence[float]) -> float:
    """The geometric mean of scores; those that are too low for a logarithm count as the lowest one."""
    return math.exp(fmean(math.log(max(score, LOWEST_SCORE)) for score in scores))


def equal_pictures(pictures: Iterable[Tensor | np.ndarray]) -> list[list[int]]:
    """Group the indices of equal pictures, given as pixels or features: one is not new if another is a reference."""
    groups: dict[str, list[int]] = {}
    for index, content in enumerate(map(picture_hash, pictures)):
        groups.setdefault(content, []).append(index)
    return list(groups.values())


def picture_hash(picture: Tensor | np.ndarray) -> str:
    """A hash of the values and the shape of a picture."""
    if isinstance(picture, Tensor):  # as bytes, since NumPy does not know all types
        picture = picture.detach().cpu().contiguous().view(torch.uint8).numpy()
    content = np.ascontiguousarray(picture)
    return f"{content.shape} {hashlib.sha256(content.data).hexdigest()}"


def _counted(scores: Tensor, counted: Tensor | None) -> Tensor:
    """The patches (h, w) that count, bool."""
    return torch.ones_like(scores, dtype=torch.bool) if counted is None else counted.to(scores.device)


def _tiles(scores: Tensor, counted: Tensor) -> list[Tensor]:
    """Scores (p,) of the patches that count in each tile of a picture (h, w) or (T, h, w), if there are any."""
    parts = zip(scores.view(-1, *scores.shape[-2:]), counted.view(-1, *scores.shape[-2:]), strict=True)
    return [tile[here] for tile, here in parts if here.any()]


def _picture_score(tiles: Iterable[Tensor], top_fraction: float) -> float:
    """Image score of the patch scores (p,) of each tile of a picture: that of the highest tile."""
    return max(image_scores(scores[None], top_fraction).item() for scores in tiles)
