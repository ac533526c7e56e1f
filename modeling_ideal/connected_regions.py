"""Connected regions of masks, found from runs of pixels without loops over pixels, regions or images. NumPy only."""

from typing import Literal, NamedTuple

import numpy as np

Connectivity = Literal[4, 8]


class Runs(NamedTuple):
    """Runs of anomalous pixels in the rows of masks, in the order of `masks.nonzero()`; (r,) integers each."""

    regions: np.ndarray  # the number of the connected region, counted from 0 over all masks
    rows: np.ndarray
    columns: np.ndarray  # of the first pixel
    lengths: np.ndarray


def label_pixels(masks: np.ndarray, connectivity: Connectivity = 8) -> np.ndarray:
    """Number the connected regions of masks (n, H, W): (p,), for each pixel of all `runs`, in their order."""
    found = runs(masks, connectivity)
    return np.repeat(found.regions, found.lengths)


def runs(masks: np.ndarray, connectivity: Connectivity = 8) -> Runs:
    """Find the runs of anomalous pixels of each mask, and number their connected regions.

    Args:
        masks: (n, H, W) booleans.
        connectivity: 8 joins diagonal neighbours, 4 does not.
    """
    masks = masks[masks.any(axis=(1, 2))]
    num_masks, height, width = masks.shape
    # An empty column before each row and an empty row before each mask separate runs and neighbours in the flat
    # array, and one empty pixel at the end closes the last run.
    stride = width + 1
    flat = np.zeros(num_masks * (height + 1) * stride + 1, dtype=np.bool_)
    flat[:-1].reshape(num_masks, height + 1, stride)[:, 1:, 1:] = masks
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    starts, ends = changes[::2], changes[1::2]  # (r,) runs of anomalous pixels, ends exclusive

    # The runs of the next row that touch run i: from the first that does not end before it starts to the last that
    # starts before it ends. With diagonals, one more pixel on either side counts as touching.
    sides: tuple[Literal["left", "right"], Literal["left", "right"]]
    sides = ("left", "right") if connectivity == 8 else ("right", "left")
    first = np.searchsorted(ends, starts + stride, side=sides[0])
    counts = np.searchsorted(starts, ends + stride, side=sides[1]) - first
    upper = np.repeat(np.arange(starts.size), counts)
    lower = np.arange(upper.size) + np.repeat(first - (np.cumsum(counts) - counts), counts)

    roots = _connect(starts.size, upper, lower)
    numbers = np.cumsum(roots == np.arange(roots.size)) - 1
    rows, columns = np.divmod(starts, stride)
    return Runs(numbers[roots], rows % (height + 1) - 1, columns - 1, ends - starts)


def pixel_shares(masks: np.ndarray, connectivity: Connectivity = 8) -> np.ndarray:
    """The share of each anomalous pixel of masks (n, H, W) in its region, 1 / size: (p,), ordered as `nonzero`."""
    regions = label_pixels(masks, connectivity)
    return (1.0 / np.bincount(regions))[regions]


def _connect(count: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """For each of `count` nodes, the smallest node of its connected component, with edges (one[i], other[i])."""
    roots = np.arange(count)
    while True:
        one, other = roots[one], roots[other]
        apart = one != other
        if not apart.any():
            return roots
        one, other = one[apart], other[apart]
        # Every root is attached to its smallest neighbour, which never creates a cycle.
        np.minimum.at(roots, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(higher := roots[roots], roots):
            roots = higher
