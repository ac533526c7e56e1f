"""Regions as boxes, against scipy's labelling."""

import numpy as np
import pytest
from scipy import ndimage

from modeling_ideal.pipeline_results import find_regions


@pytest.mark.parametrize("density", [0.05, 0.3, 0.45, 0.7, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (40, 1), (37, 53)])
def test_regions_are_those_of_scipy(shape, density):
    random = np.random.default_rng(int(100 * density))
    mask = random.random(shape) < density
    scores = random.random(shape).astype(np.float32)
    labels, count = ndimage.label(mask, structure=np.ones((3, 3)))
    expected = []
    for index, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
        inside = labels == index
        box = (columns.start, rows.start, columns.stop, rows.stop)
        expected.append({"box": box, "score": float(scores[inside].max()), "area": int(inside.sum())})
    regions = find_regions(mask, scores)
    assert len(regions) == count
    assert regions == sorted(expected, key=lambda region: -region["score"])


def test_corners_join_and_nothing_gives_nothing():
    scores = np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)
    [region] = find_regions(scores > 0.5, scores)
    assert region == {"box": (0, 0, 2, 2), "score": pytest.approx(0.9), "area": 2}
    assert find_regions(scores > 1, scores) == []
