"""How far IDEAL is ahead: against scipy's bootstrap, and as a table."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from modeling_ideal.data.reference_sets import ReferenceSet
from modeling_ideal.evaluation.protocol.differences import (
    differences_to_ideal,
    gains_of_eraser,
    interval,
    resampled_differences,
)
from modeling_ideal.evaluation.report.difference_table import difference_table
from modeling_ideal.evaluation.report.target_results import TargetResults


def measured(figures, setup="N1A1"):
    """Measurements of one method: an image AUROC for each reference set, with scores that have it, and no masks."""
    return [
        (
            ReferenceSet(f"part_{place}", setup, 0, "dent", (), ()),
            {
                "settings": {"general": {"image_auroc": figure, "pixel_auroc": None}},
                "scores": {"general": scores_of(figure)},
                "difficulty": None,
            },
        )
        for place, figure in enumerate(figures)
    ]


def scores_of(auroc):
    """One bad picture, which scores above `auroc` percent of a hundred good ones."""
    return {"normal": {f"good/{place}": float(place) for place in range(100)}, "anomalous": {"bad": auroc - 0.5}}


def test_the_interval_of_sets_is_that_of_scipy():
    values = np.random.default_rng(1).normal(2, 3, 40)
    mean, low, high = interval(values, np.broadcast_to(values, (20_000, 40)))
    expected = bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=0).confidence_interval
    assert mean == pytest.approx(values.mean())
    assert (low, high) == (pytest.approx(expected.low, abs=0.1), pytest.approx(expected.high, abs=0.1))


def test_queries_are_drawn_as_scipy_draws_them():
    """One reference set, so queries alone are drawn: scipy draws good and bad ones apart, both methods together."""
    generator = np.random.default_rng(2)
    bad, good = generator.normal([[1.0], [0.5]], 1, (2, 25)), generator.normal(0, 1, (2, 30))

    def difference(first_bad, second_bad, first_good, second_good):
        return auroc(first_bad, first_good) - auroc(second_bad, second_good)

    def auroc(positive, negative):
        return (positive[:, None] > negative).mean()

    def both(bad_places, good_places, axis=-1):
        chosen_bad, chosen_good = bad[:, bad_places.astype(int)], good[:, good_places.astype(int)]
        return difference(*chosen_bad, *chosen_good)

    expected = bootstrap(
        (np.arange(25), np.arange(30)), both, n_resamples=4_000, vectorized=False, method="percentile", rng=0
    )
    scores = [
        {
            "normal": {f"good/{place}": score for place, score in enumerate(of_good)},
            "anomalous": {f"bad/{place}": score for place, score in enumerate(of_bad)},
        }
        for of_good, of_bad in zip(good, bad, strict=True)
    ]
    found = resampled_differences([("part", *scores)])[:, 0]
    limits = np.percentile(found, [2.5, 97.5])
    assert limits == pytest.approx(expected.confidence_interval, abs=0.02)
    assert found.std() == pytest.approx(expected.standard_error, rel=0.1)


def test_a_picture_is_drawn_together_with_itself_in_every_set():
    """Two sets of one category with the same scores: whichever pictures are drawn, both have the same difference."""
    generator = np.random.default_rng(3)
    first, second = (
        {
            "normal": {f"good/{place}": generator.normal() for place in range(8)},
            "anomalous": {f"bad/{place}": generator.normal() for place in range(8)},
        }
        for _ in range(2)
    )
    found = resampled_differences([("nut", first, second), ("nut", first, second), ("bolt", first, second)])
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    assert (found[:, 0] != found[:, 2]).any()


def test_differences_are_paired_by_reference_set():
    """The figures vary by 60 points, their difference hardly: an unpaired comparison would see nothing."""
    ours, other = [30.0, 60.0, 90.0], [29.0, 58.0, 89.0]
    found = differences_to_ideal({"ideal": measured(ours), "plain": measured(other)})
    mean, low, high = found["N1A1"]["general"]["plain"]["image_auroc"]
    assert mean == pytest.approx(4 / 3)
    assert -0.5 <= low <= mean <= high <= 4
    assert "pixel_auroc" not in found["N1A1"]["general"]["plain"]


def test_without_ideal_there_is_nothing_to_compare():
    assert differences_to_ideal({"plain": measured([50.0])}) == {}


def test_the_eraser_is_compared_with_the_same_method_without_it():
    rows = {"resad": measured([50.0, 60.0]), "resad_nve": measured([53.0, 62.0]), "nagl_nve": measured([70.0, 80.0])}
    found = gains_of_eraser(rows)["N1A1"]["general"]
    assert set(found) == {"resad_nve"}  # NAGL without it was not measured
    swapped = differences_to_ideal({"ideal": rows["resad_nve"], "resad": rows["resad"]})["N1A1"]["general"]["resad"]
    assert found["resad_nve"] == swapped
    assert found["resad_nve"]["image_auroc"][0] == pytest.approx(2.5)


def test_the_table_has_a_column_for_each_set_up():
    differences = differences_to_ideal(
        {
            "ideal": measured([60.0, 70.0]) + measured([80.0, 90.0], "N4A1"),
            "plain": measured([50.0, 60.0]) + measured([80.0, 91.0], "N4A1"),
        }
    )
    table = difference_table(TargetResults("parts", ({"differences": differences},), {}), "general")
    assert table.splitlines()[0] == "| IDEAL less | N1A1 | N4A1 |"
    assert "| plain | +10.0 [" in table
    assert "/ - | -0.5 [" in table
    assert difference_table(TargetResults("parts", ({},), {}), "general") == ""
