"""Trouble stops a run with a sentence; a healthy run goes on."""

import math

import pytest
import torch

from modeling_ideal.training.head import learner, loop
from modeling_ideal.training.head.checkpoints import Progress
from modeling_ideal.training.head.loss_checks import check_falling_losses, check_finite_losses
from modeling_ideal.training.head.run import train_head


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number(value):
    check_finite_losses({"loss": 2.0, "dice": 1.0}, 3)
    with pytest.raises(
        ValueError, match=r"step 3: the loss is (nan|inf) \(not finite: dice\); try a lower --learning_rate"
    ):
        check_finite_losses({"loss": value, "focal": 0.1, "dice": value}, 3)


def test_a_loss_that_does_not_fall():
    with pytest.raises(ValueError, match=r"does not fall: 2\.0000 in the first epoch, 2\.0000 at best in the 4 after"):
        check_falling_losses([2.0, 2.1, 2.0, 2.3, 2.2], warmup_epochs=2)


@pytest.mark.parametrize(
    ("losses", "warmup"),
    [
        ([2.0], 0),
        ([2.0, 2.1], 0),
        ([2.0, 2.1, 2.2, 2.3], 2),  # too early to tell
        ([2.0, 1.9, 2.1, 2.1, 2.1, 2.1], 2),  # it has been lower
        ([2.0, 1.5, 1.4, 1.4, 1.4], 2),
    ],
)
def test_healthy_and_short_runs_go_on(losses, warmup):
    check_falling_losses(losses, warmup)


def test_a_broken_loss_never_reaches_the_weights(options, monkeypatch):
    steps = []

    def broken(self, episodes):
        vectors = self.model.deviation_encoder.vectors.weight
        return {"loss": vectors.sum() * math.nan, "dice": torch.tensor(math.nan)}

    monkeypatch.setattr(learner.EpisodeLoss, "forward", broken)
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, *_: steps.append(self))
    with pytest.raises(ValueError, match="step 0: the loss is nan"):
        train_head(options())
    assert not steps


def test_a_run_from_scratch_that_does_not_learn_is_stopped(options, monkeypatch):
    monkeypatch.setattr(loop, "rate_at", lambda *_: 0.1)
    real = Progress.epoch_losses

    def rising(progress, steps):
        return [{"loss": 1.0 + number} for number, _ in enumerate(real(progress, steps))]

    monkeypatch.setattr(Progress, "epoch_losses", rising)
    changes = {"epochs": 6, "episodes_per_epoch": 2}
    with pytest.raises(ValueError, match="the loss does not fall"):
        train_head(options(**changes))
