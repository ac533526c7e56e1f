"""Student's t distribution without SciPy, which a model on the Hub cannot expect to find."""

import math
from functools import cache

CONTINUED = 500  # terms of the continued fraction; a few dozen are enough for up to a thousand degrees of freedom
PRECISION = 1e-15


def t_cdf(value: float, degrees: float) -> float:
    """Probability that a variable with Student's t distribution is at most `value`."""
    if math.isinf(value):
        return float(value > 0)
    square = value * value
    if square < degrees:  # the tail loses its digits where it is nearly a half
        share = _incomplete_beta(0.5, degrees / 2, square / (degrees + square))
        return 0.5 + math.copysign(share, value) / 2
    tail = _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square)) / 2
    return tail if value < 0 else 1 - tail


@cache
def t_quantile(probability: float, degrees: float) -> float:
    """The value that a variable with Student's t distribution exceeds with 1 - `probability`, by bisection."""
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # converges fast below this value only
        return 1 - _incomplete_beta(b, a, 1 - x)
    # From the innermost term outwards: 1 / (1 + d_1 / (1 + d_2 / (1 + ...))).
    fraction, previous, terms = 1.0, 0.0, 8
    while abs(fraction - previous) > PRECISION * abs(fraction) and terms <= CONTINUED:
        previous, fraction = fraction, 1.0
        for place in range(terms, 0, -1):
            fraction = 1 + _beta_term(place, a, b, x) / fraction
        terms *= 2
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front / (a * fraction)


def _beta_term(place: int, a: float, b: float, x: float) -> float:
    """Coefficient d_place of the continued fraction."""
    half = place // 2
    if place % 2:
        return -(a + half) * (a + b + half) * x / ((a + place - 1) * (a + place))
    return half * (b - half) * x / ((a + place - 1) * (a + place))
