"""A million normal patches, as of 1,000 pictures: time and memory of the exact search, and of what is kept."""

import resource
import time

import torch

from modeling_ideal import IdealReferences
from modeling_ideal.normal_variation_eraser import erase_normal_variation

PATCHES, CHANNELS, QUERY = 1_000_000, 384, 1024
NEIGHBORS, COMPONENTS, STRENGTH = 12, 4, 0.8


def measure() -> dict[str, float]:
    """Seconds, and gigabytes of the whole process at most so far."""
    generator = torch.Generator().manual_seed(0)
    before = _gigabytes()
    references = IdealReferences([torch.randn(PATCHES, CHANNELS, generator=generator)], num_normal=1000)
    features = _gigabytes()
    normals = references.normals(0)
    kept = _gigabytes()
    query = torch.randn(QUERY, CHANNELS, generator=generator)
    started = time.perf_counter()
    erase_normal_variation(query, *normals, NEIGHBORS, COMPONENTS, STRENGTH, "nearest")
    return {
        "before, GB": before,
        "with the features of 1,000,000 patches, GB": features,
        "ready to search, GB": kept,
        "after the search for a picture of 1,024 patches, GB": _gigabytes(),
        "search and erasing for a picture of 1,024 patches, s": time.perf_counter() - started,
    }


def _gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
