"""The drawn curves: whole when short, close to the whole when thinned."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from modeling_ideal.metrics import image_metrics, image_roc_curve, pixel_metrics, pixel_roc_curve, pro_curve
from modeling_ideal.metrics.ranking import area

from .plain import plain_pro


def case(shape=(3, 40, 40)):
    rng = np.random.default_rng(0)
    masks = rng.random(shape) < 0.2
    return rng.standard_t(2, shape) + masks, masks


def distance(x, y, curve):
    """How far each point (x, y) is from a polyline, at most."""
    start, end = (np.column_stack(curve)[part] for part in (slice(None, -1), slice(1, None)))
    direction = end - start
    length = np.maximum((direction**2).sum(1), 1e-30)
    offsets = np.column_stack((x, y))[:, None] - start
    along = np.clip((offsets * direction).sum(-1) / length, 0, 1)[..., None]
    return np.linalg.norm(offsets - along * direction, axis=-1).min(1).max()


def test_short_curves_are_whole():
    scores, labels = [0.1, 0.4, 0.35, 0.8, 0.4], [0, 0, 1, 1, 1]
    x, y = image_roc_curve(scores, labels)
    expected_x, expected_y, _ = sklearn_metrics.roc_curve(labels, scores, drop_intermediate=False)
    assert set(zip(expected_x, expected_y, strict=True)) <= set(zip(x, y, strict=True))
    assert sklearn_metrics.auc(x, y) == pytest.approx(image_metrics(scores, labels)["auroc"])


@pytest.mark.parametrize("max_points", [3, 10, 100])
@pytest.mark.parametrize("draw", [pixel_roc_curve, pro_curve])
def test_thinned_curves_stay_close(draw, max_points):
    maps, masks = case()
    whole = draw(maps, masks, max_points=10**6)
    x, y = draw(maps, masks, max_points=max_points)
    assert len(x) == len(y) <= max_points < len(whole[0])
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    assert distance(*whole, (x, y)) <= 2 / (max_points - 2)


def test_areas_under_the_curves_are_the_metrics():
    maps, masks = case(shape=(2, 12, 12))
    result = pixel_metrics(maps, masks)
    assert sklearn_metrics.auc(*pixel_roc_curve(maps, masks)) == pytest.approx(result["auroc"])
    assert area(pro_curve(maps, masks), 0.3) == pytest.approx(plain_pro(maps, masks))


def test_no_curve_with_one_class_only():
    for x, y in (image_roc_curve([0.1, 0.2], [1, 1]), pro_curve(np.zeros((1, 2, 2)), np.zeros((1, 2, 2)))):
        assert x.size == y.size == 0


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="max_points: expected at least 3, got 2"):
        image_roc_curve([0.1, 0.2], [0, 1], max_points=2)
