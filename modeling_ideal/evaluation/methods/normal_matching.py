"""Normal matching: how far a patch is from the nearest normal one (AnomalyDINO)."""

import numpy as np
from PIL import Image
from torch import Tensor

from ...normal_variation_eraser import nearest_cosine, unit
from ...scoring import cosine_distance
from .context import Context, Query
from .registry import method

ROTATIONS = 8


@method()
def normal_matching(query: Query) -> Tensor:
    """Cosine distance to the nearest normal patch (AnomalyDINO without rotations)."""
    return cosine_distance(query.deviations.nearest_cosine)


@method()
def shared_normal_matching(query: Query) -> Tensor:
    """Normal matching with the unmarked patches of the abnormal references among the normal ones."""
    return normal_matching(query.shared)


@method(on_request=True)
def rotated_normal_matching(query: Query) -> Tensor:
    """Normal matching with eight rotations of every normal reference (AnomalyDINO)."""
    return cosine_distance(nearest_cosine(query.patches, query.context.once(rotated_directions)))


def rotated_directions(context: Context) -> Tensor:
    """Patches of the rotated normal references at length 1: (any, C)."""
    if context.rotate is None:
        raise ValueError("expected features of rotated normal references for this method, got none")
    return unit(context.rotate().flatten(0, 2))


def rotated_copies(image: Image.Image) -> list[Image.Image]:
    """A picture turned by each eighth of a circle, its corners filled by reflection."""
    array = np.asarray(image.convert("RGB"))
    height, width = array.shape[:2]
    left, top = width // 2, height // 2
    padded = Image.fromarray(np.pad(array, ((top, top), (left, left), (0, 0)), mode="reflect"))
    turned = [padded.rotate(360 / ROTATIONS * turn, Image.Resampling.BICUBIC) for turn in range(ROTATIONS)]
    return [picture.crop((left, top, left + width, top + height)) for picture in turned]
