"""A million normal patches, as of 1,000 pictures: time and memory of the exact search, and with a tenth of them."""

import resource
import time

import torch
from torch import Tensor

from modeling_ideal import IdealReferences
from modeling_ideal.normal_bank import NormalBank
from modeling_ideal.normal_variation_eraser import erase_normal_variation
from modeling_ideal.reference_pictures import PictureGroup, ReferencePictures

PICTURES, GRID, CHANNELS, QUERY = 1000, (25, 40), 384, 1024
KEPT = 100_000
NEIGHBORS, COMPONENTS, STRENGTH = 12, 4, 0.8


def measure() -> dict[str, float]:
    """Seconds, and gigabytes of the whole process at most so far."""
    generator = torch.Generator().manual_seed(0)
    before = _gigabytes()
    features = torch.randn(PICTURES, *GRID, CHANNELS, generator=generator)
    references = IdealReferences([features.flatten(0, 2)], num_normal=PICTURES)
    with_features = _gigabytes()
    normals = references.normals(0)
    kept = _gigabytes()
    query = torch.randn(QUERY, CHANNELS, generator=generator)
    clock, processor = _search(query, normals)
    searched = _gigabytes()
    del references, normals
    started = time.process_time()
    pictures = PictureGroup(features, [f"{place:04}" for place in range(PICTURES)])
    fewer = NormalBank(ReferencePictures(pictures, None, max_patches=KEPT), share_normals=False).without()
    selected = time.process_time() - started
    return {
        "before, GB": before,
        "with the features of 1,000,000 patches, GB": with_features,
        "ready to search, GB": kept,
        "after the search for a picture of 1,024 patches, GB": searched,
        "search and erasing for a picture of 1,024 patches, s": clock,
        "the same, CPU s": processor,
        "selecting 100,000 of them, CPU s": selected,
        "search and erasing with 100,000, CPU s": _search(query, fewer)[1],
        "after all this, GB": _gigabytes(),
    }


def _search(query: Tensor, normals: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Seconds on the clock and of the processor."""
    started, used = time.perf_counter(), time.process_time()
    erase_normal_variation(query, *normals, NEIGHBORS, COMPONENTS, STRENGTH, "nearest")
    return time.perf_counter() - started, time.process_time() - used


def _gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
