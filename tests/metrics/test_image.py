"""Image metrics against scikit-learn and brute force."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn.metrics import average_precision_score, roc_auc_score

from modeling_ideal.metrics import image_metrics

from .plain import REPEATABLE, brute_force_f1_max, images


@REPEATABLE
@given(images())
def test_equals_sklearn_and_brute_force(case):
    scores, labels = case
    result = image_metrics(scores, labels)
    assert list(result) == ["auroc", "ap", "f1_max"]
    assert result["auroc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-6)
    assert result["ap"] == pytest.approx(average_precision_score(labels, scores), abs=1e-6)
    assert result["f1_max"] == pytest.approx(brute_force_f1_max(scores, labels == 1), abs=1e-6)


@pytest.mark.parametrize("decimals", [1, 3, 12])
def test_equals_sklearn_on_many_scores(decimals):
    rng = np.random.default_rng(decimals)
    labels = rng.random(20_000) < 0.1
    scores = np.round(rng.standard_t(1.5, labels.size) + labels, decimals)
    result = image_metrics(scores, labels)
    assert result["auroc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert result["ap"] == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


NAN = math.nan
DEGENERATE = {
    "normal only": ([0.1, 0.2], [0, 0], (NAN, NAN, NAN)),
    "anomalous only": ([0.1, 0.2], [1, 1], (NAN, 1, 1)),
    "one normal image": ([0.1], [0], (NAN, NAN, NAN)),
    "one anomalous image": ([0.1], [1], (NAN, 1, 1)),
    "all equal": ([0.3] * 4, [0, 1, 0, 0], (0.5, 0.25, 0.4)),
    "two zeros": ([0.0, -0.0], [0, 1], (0.5, 0.5, 2 / 3)),
    "perfect": ([0.1, 0.2, 0.3], [0, 0, 1], (1, 1, 1)),
    "reversed": ([0.3, 0.2, 0.1], [0, 0, 1], (0, 1 / 3, 0.5)),
}


@pytest.mark.parametrize(("scores", "labels", "expected"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_input_has_defined_results(scores, labels, expected):
    assert tuple(image_metrics(scores, labels).values()) == pytest.approx(expected, nan_ok=True)


def test_neighbouring_floats_are_not_ties():
    scores = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert image_metrics(scores, [0, 1])["auroc"] == 1
    assert image_metrics(scores, [1, 0])["auroc"] == 0


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        np.float16,
        np.float32,
        lambda values: torch.tensor(values, requires_grad=True),
        lambda values: torch.tensor(values, dtype=torch.bfloat16),
        lambda values: torch.tensor(values, dtype=torch.float16),
    ],
)
@pytest.mark.parametrize("label_form", [list, np.bool_, np.float32, torch.tensor])
def test_accepts_any_form(form, label_form):
    scores, labels = [0.5, 0.25, 0.75, 0.5, 1.0], [0, 0, 1, 1, 0]
    assert image_metrics(form(scores), label_form(labels)) == image_metrics(scores, labels)
