"""Student's t distribution against SciPy's."""

import math

import pytest
from scipy import stats

from modeling_ideal.student_t import t_cdf, t_quantile

DEGREES = (0.7, 1, 2, 3, 4.5, 9, 30, 200, 1000)


@pytest.mark.parametrize("degrees", DEGREES)
def test_probabilities(degrees):
    for value in (-50, -8, -3, -1, -0.1, 0, 1e-9, 0.1, 1, 3, 8, 50, 1e6):
        expected = stats.t.cdf(value, degrees)
        assert t_cdf(value, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-13)
    assert (t_cdf(-math.inf, degrees), t_cdf(math.inf, degrees)) == (0, 1)


@pytest.mark.parametrize("degrees", DEGREES)
def test_quantiles(degrees):
    for probability in (0.001, 0.05, 0.5, 0.6, 0.95, 0.99, 0.9999):
        expected = stats.t.ppf(probability, degrees)
        assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-12)
