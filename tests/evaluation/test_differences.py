"""How far IDEAL is ahead: against scipy's bootstrap, and as a table."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from modeling_ideal.data.reference_sets import ReferenceSet
from modeling_ideal.evaluation.protocol.differences import differences_to_ideal, interval
from modeling_ideal.evaluation.report.difference_table import difference_table
from modeling_ideal.evaluation.report.target_results import TargetResults


def measured(figures, setup="N1A1"):
    """Measurements of one method: an image AUROC for each reference set, and a pixel AUROC that is undefined."""
    return [
        (
            ReferenceSet(f"part_{place}", setup, 0, "dent", (), ()),
            {"settings": {"general": {"image_auroc": figure, "pixel_auroc": None}}, "queries": {}, "difficulty": None},
        )
        for place, figure in enumerate(figures)
    ]


def test_the_interval_is_that_of_scipy():
    values = np.random.default_rng(1).normal(2, 3, 40)
    mean, low, high = interval(values.tolist())
    expected = bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=0).confidence_interval
    assert mean == pytest.approx(values.mean())
    assert (low, high) == (pytest.approx(expected.low, abs=0.1), pytest.approx(expected.high, abs=0.1))


def test_differences_are_paired_by_reference_set():
    """The figures vary by 60 points, their difference hardly: an unpaired comparison would see nothing."""
    ours, other = [30.0, 60.0, 90.0], [29.0, 58.0, 89.0]
    found = differences_to_ideal({"ideal": measured(ours), "plain": measured(other)})
    mean, low, high = found["N1A1"]["general"]["plain"]["image_auroc"]
    assert mean == pytest.approx(4 / 3)
    assert 1 <= low <= mean <= high <= 2
    assert "pixel_auroc" not in found["N1A1"]["general"]["plain"]


def test_without_ideal_there_is_nothing_to_compare():
    assert differences_to_ideal({"plain": measured([50.0])}) == {}


def test_the_table_has_a_column_for_each_set_up():
    differences = differences_to_ideal(
        {
            "ideal": measured([60.0, 70.0]) + measured([80.0, 90.0], "N4A1"),
            "plain": measured([50.0, 60.0]) + measured([80.0, 91.0], "N4A1"),
        }
    )
    table = difference_table(TargetResults("parts", ({"differences": differences},), {}), "general")
    assert table.splitlines()[0] == "| IDEAL less | N1A1 | N4A1 |"
    assert "| plain | +10.0 [+10.0, +10.0] / - | -0.5 [-1.0, +0.0] / - |" in table
    assert difference_table(TargetResults("parts", ({},), {}), "general") == ""
