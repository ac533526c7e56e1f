"""Curves of an evaluation: their areas are the metrics, and every method has a look of its own."""

import numpy as np
import pytest
import torch

from modeling_ideal.evaluation.pictures import plots
from modeling_ideal.evaluation.pictures.plots import MethodCurves, draw_curves, line_styles
from modeling_ideal.metrics import image_metrics, pixel_metrics
from modeling_ideal.metrics.image import rank_images
from modeling_ideal.metrics.pixel import rank_pixels


def test_areas_of_curves_are_the_metrics():
    random = np.random.default_rng(0)
    masks = random.random((6, 20, 20)) > 0.9
    masks[:2] = False
    maps = torch.from_numpy(masks * 0.3 + random.random(masks.shape))
    labels, scores = torch.tensor([0, 0, 1, 1, 1, 1]), maps.amax((1, 2))
    curves = MethodCurves.of(rank_images(scores, labels), rank_pixels(maps, masks))
    assert curves.auroc == image_metrics(scores, labels)["auroc"]
    assert curves.pro == pixel_metrics(maps, masks)["pro"]
    figure = draw_curves("title", {"ideal": curves, "normal_matching": curves})
    images, pixels = figure.axes
    labels = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in (images, pixels)]
    assert labels[0] == [f"{100 * curves.auroc:.1f}  {name}" for name in ("ideal", "normal matching")]
    assert labels[1] == [f"{100 * curves.pro:.1f}  {name}" for name in ("ideal", "normal matching")]
    line = pixels.get_lines()[0]
    inside = line.get_xdata() <= 0.3
    drawn_area = np.trapezoid(line.get_ydata()[inside], line.get_xdata()[inside]) / 0.3
    assert drawn_area == pytest.approx(curves.pro, abs=0.02)


def test_every_method_has_its_own_colour(monkeypatch):
    names = [f"method_{number}" for number in range(30)]
    monkeypatch.setattr(plots, "METHODS", dict.fromkeys(names))
    trained = ["ideal", "ideal_paper", "ideal_training_free", "mine", "yours"]
    styles = line_styles([*trained, "method_3"])
    assert styles["ideal"]["linestyle"] == "-"
    colors = np.array([styles[name]["color"] for name in names])
    distances = np.linalg.norm(colors[:, None] - colors, axis=-1) + np.eye(len(names))
    assert distances.min() > 0.12
    looks = {(str(style["color"]), str(style["linestyle"])) for style in styles.values()}
    assert len(looks) == len(names) + len(trained)
