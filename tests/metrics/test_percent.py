"""Image and pixel metrics together."""

import numpy as np
import pytest

from modeling_ideal.metrics import image_metrics, pixel_metrics
from modeling_ideal.metrics.percent import percent_metrics


def test_all_metrics_are_there_in_percent():
    random = np.random.default_rng(0)
    labels = np.array([0, 0, 1, 1])
    masks = np.zeros((4, 6, 6), bool)
    masks[2:, 1:3, 1:4] = True
    scores, maps = labels * 0.3 + random.random(4), masks * 0.3 + random.random((4, 6, 6))
    found = percent_metrics(scores, labels, maps, masks)
    assert list(found) == [
        *("image_auroc", "image_ap", "image_f1_max"),
        *("pixel_auroc", "pixel_pro", "pixel_f1_max"),
    ]
    expected = [*image_metrics(scores, labels).values(), *pixel_metrics(maps, masks).values()]
    assert list(found.values()) == pytest.approx([100 * value for value in expected])


def test_undefined_metrics_stay_undefined():
    found = percent_metrics([0.1, 0.2], [0, 0], np.zeros((2, 3, 3)), np.zeros((2, 3, 3)))
    assert np.isnan(found["image_auroc"])
    assert np.isnan(found["pixel_auroc"])
