"""Connected anomalous regions of one picture, as boxes. Pure functions."""

from typing import TypedDict

import numpy as np


class Region(TypedDict):
    """One connected anomalous region."""

    box: tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels; x1 and y1 are outside
    score: float  # the highest of its pixels
    area: int  # in pixels


def find_regions(mask: np.ndarray, anomaly_map: np.ndarray) -> list[Region]:
    """The regions of a mask (H, W) bool with their scores in a map (H, W), highest first.

    Pixels that touch by a corner belong together.
    """
    rows, starts, ends = _runs(mask)
    if not len(rows):
        return []
    labels = _connect(rows, starts, ends)  # (r,)
    count = labels.max() + 1
    # Every other interval of the flat map is a run; a pixel more, so that the last one may end at its end.
    flat = np.append(anomaly_map.ravel(), 0)
    edges = np.stack([rows * mask.shape[1] + starts, rows * mask.shape[1] + ends], 1)  # (r, 2)
    peaks = np.maximum.reduceat(flat, edges.ravel())[::2]
    scores = np.zeros(count, flat.dtype)
    np.maximum.at(scores, labels, peaks)
    low = np.full((count, 2), max(mask.shape))
    high = np.zeros((count, 2), int)
    np.minimum.at(low, labels, np.stack([starts, rows], 1))
    np.maximum.at(high, labels, np.stack([ends, rows + 1], 1))
    areas = np.bincount(labels, weights=ends - starts)
    return [
        {
            "box": (int(low[index, 0]), int(low[index, 1]), int(high[index, 0]), int(high[index, 1])),
            "score": float(scores[index]),
            "area": int(areas[index]),
        }
        for index in np.argsort(-scores, kind="stable")
    ]


def _runs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, starts and ends (exclusive) of the runs of anomalous pixels, each (r,), in reading order."""
    steps = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, starts = np.nonzero(steps == 1)
    return rows, starts, np.nonzero(steps == -1)[1]


def _connect(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The region (r,), counted from 0 in reading order, of each run: runs of neighbouring rows that touch share it."""
    parents = list(range(len(rows)))

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]
            run = parents[run]
        return run

    row, start, end = rows.tolist(), starts.tolist(), ends.tolist()
    first = 0  # the first run above that may touch this one
    for run in range(len(row)):
        while row[first] < row[run] - 1 or (row[first] == row[run] - 1 and end[first] < start[run]):
            first += 1
        above = first
        while row[above] == row[run] - 1 and start[above] <= end[run]:
            one, other = sorted((root(above), root(run)))
            parents[other] = one
            above += 1
    return np.unique([root(run) for run in range(len(row))], return_inverse=True)[1]
