"""Optimiser and learning rate, as the protocol states them."""

import math

import pytest
import torch

from modeling_ideal.training.head.schedule import build_optimizer, rate_at, warmup_steps


def test_the_optimiser_of_the_protocol():
    [group] = build_optimizer([torch.nn.Parameter(torch.zeros(2))], 1e-3).param_groups
    assert {name: group[name] for name in ("lr", "betas", "eps", "weight_decay", "amsgrad")} == {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-10,
        "weight_decay": 1e-4,
        "amsgrad": True,
    }


def test_warm_up_then_cosine_over_twenty_epochs():
    warmup = warmup_steps(32, 20)
    assert warmup == 2 * 32
    rates = [rate_at(step, 640, warmup, 1e-3) for step in range(640)]
    assert rates[0] == pytest.approx(1e-5)
    assert rates[32] == pytest.approx((1e-5 + 1e-3) / 2)  # half way up
    assert max(rates) == rates[64] == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(1e-5)  # 1 % of the base
    for step in (100, 300, 639):
        expected = 1e-5 + 0.99e-3 * 0.5 * (1 + math.cos(math.pi * (step - 64) / (639 - 64)))
        assert rates[step] == pytest.approx(expected)


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (7, 2), (3, 40)])
def test_short_runs_reach_both_ends(steps, epochs):
    warmup = warmup_steps(steps, epochs)
    assert warmup <= steps * epochs / 10
    rates = [rate_at(step, steps * epochs, warmup, 1e-3) for step in range(steps * epochs)]
    assert max(rates) == pytest.approx(1e-3)
    assert len(rates) == 1 or rates[-1] == pytest.approx(1e-5)


def test_a_base_rate_below_the_start_of_warm_up():
    assert rate_at(0, 100, 10, 1e-6) == 1e-6
