"""The bound of appendix B (Eq. A20)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from modeling_ideal.evaluation.bound import plot_source_side_bound, source_side_bound

REPEATABLE = settings(derandomize=True, deadline=None, database=None)
EPISODES = st.lists(st.integers(100, 10**6), min_size=1, max_size=5)


def plain_bound(M, n, d, delta, beta):
    variance = sum(beta[k] ** 2 / n[k] for k in range(len(n)))
    capacity = sum(beta[k] * math.sqrt(d / n[k] * math.log(math.e * n[k] / d)) for k in range(len(n)))
    return math.sqrt(0.5 * variance * math.log(M / delta)) + 2 * capacity


@REPEATABLE
@given(st.integers(1, 1000), EPISODES, st.floats(0.1, 100), st.floats(1e-9, 0.99), st.integers(0, 10**6))
def test_equals_the_plain_formula(M, n, d, delta, seed):
    beta = np.random.default_rng(seed).dirichlet(np.ones(len(n)))
    bound = source_side_bound(M, n, vc_dimension=d, failure_probability=delta, source_weights=beta)
    assert bound == pytest.approx(plain_bound(M, n, d, delta, beta), rel=1e-12)


def test_a_single_domain_and_equal_weights_are_the_defaults():
    assert source_side_bound(45, 10_000, vc_dimension=10) == pytest.approx(plain_bound(45, [10_000], 10, 0.05, [1]))
    assert source_side_bound(45, [500, 900], vc_dimension=10) == pytest.approx(
        plain_bound(45, [500, 900], 10, 0.05, [0.5, 0.5])
    )


@REPEATABLE
@given(st.integers(1, 1000), st.integers(1, 1000), EPISODES, st.integers(1, 10**5))
def test_grows_with_deviation_vectors_and_falls_with_episodes(M, more, n, episodes):
    bound = source_side_bound(M, n, vc_dimension=100)
    assert source_side_bound(M + more, n, vc_dimension=100) > bound
    assert source_side_bound(M, [*n[:-1], n[-1] + episodes], vc_dimension=100) < bound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_deviation_vectors": 0}, "num_deviation_vectors: expected at least 1, got 0"),
        ({"vc_dimension": 0}, "vc_dimension: expected a finite number above 0, got 0"),
        ({"vc_dimension": math.inf}, "vc_dimension: expected a finite number above 0, got inf"),
        ({"failure_probability": 1}, r"failure_probability: expected a number in \(0, 1\), got 1"),
        ({"num_episodes": 9}, "num_episodes: expected .* at least vc_dimension = 10, got 9"),
        ({"num_episodes": []}, r"num_episodes: expected .* got \[\]"),
        ({"num_episodes": [[500]]}, r"num_episodes: expected .* got \[\[500\]\]"),
        ({"source_weights": [0.5, 0.5]}, r"source_weights: expected 1 weights, .* got \[0.5, 0.5\]"),
        ({"source_weights": [0.9]}, r"source_weights: expected .* of sum 1, got \[0.9\]"),
        ({"num_episodes": [50, 50], "source_weights": [-1, 2]}, r"source_weights: .* not negative .* got \[-1, 2\]"),
    ],
)
def test_refusals(changes, message):
    arguments = {"num_deviation_vectors": 45, "num_episodes": 500, "vc_dimension": 10, **changes}
    with pytest.raises(ValueError, match=message):
        source_side_bound(**arguments)


def test_the_plot_is_a_picture_and_nothing_else_is_left(tmp_path):
    plot_source_side_bound(tmp_path / "bound.png")
    assert [file.name for file in tmp_path.iterdir()] == ["bound.png"]
    with Image.open(tmp_path / "bound.png") as picture:
        picture.load()
        assert len(picture.convert("RGB").getcolors(2**24)) > 100


def test_a_failed_plot_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "bound.png"
    path.write_bytes(b"earlier")
    with pytest.raises(ValueError, match="num_episodes: expected"):
        plot_source_side_bound(path, num_episodes=(1, 2))
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]
