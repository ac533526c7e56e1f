"""Eight users at once, for a moment; `python -m tests.benchmarks --only load` takes minutes."""

import itertools

import pytest

from .benchmarks import load

SECONDS = 2.0
STEPS = 3


@pytest.mark.parametrize("drive", [load.drive_handler, load.drive_app])
def test_eight_users_get_what_each_gets_alone(drive, tiny_folder):
    figures = drive(tiny_folder, SECONDS)
    assert figures["answers"] >= load.USERS
    assert 0 < figures["latency, 50th percentile, s"] <= figures["latency, 99th percentile, s"]
    assert figures["memory at half time, MB"] > 0


def test_mixed_references_are_noticed():
    calls = itertools.count()

    def mixed(step):
        return next(calls) if next(calls) > 2 * STEPS else 0

    with pytest.raises(RuntimeError, match=r"user 0: expected 0 as alone, got \d+"):
        load.drive([mixed], STEPS, 1.0)


def test_users_with_equal_references_would_prove_nothing():
    with pytest.raises(RuntimeError, match="expected 2 different answers, got 1"):
        load.drive([lambda step: "same", lambda step: "same"], STEPS, 1.0)


def test_an_error_of_one_user_is_an_error():
    calls = itertools.count()

    def failing(step):
        if next(calls) >= STEPS:
            raise ValueError("no answer")
        return "answer"

    with pytest.raises(ValueError, match="no answer"):
        load.drive([failing, lambda step: "another answer"], STEPS, 0.1)


def test_growing_memory_fails():
    load.check({f"app: {load.GROWTH}": 1.0, "app: answers": 9})
    with pytest.raises(RuntimeError, match=r"grow by at most 1.03, got \{'app: .*': 1.5\}"):
        load.check({f"app: {load.GROWTH}": 1.5, "app: answers": 9})
