"""The training loop with Accelerate: steps, and at the end of each epoch checks, validation and a checkpoint."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from tqdm import tqdm

from .batches import Batch, Batches
from .checkpoints import Checkpoints, Progress
from .loss_checks import check_falling_losses, check_finite_losses
from .options import HeadTrainingOptions
from .schedule import build_optimizer, rate_at, warmup_steps

Validation = Callable[[], dict[str, Any]]
"""Metrics by set-up on the held-out categories, as the head is now."""


class HeadTraining:
    """A head in training: its optimiser, its progress, and the loop over batches.

    Args:
        options: of the run.
        accelerator: of this process.
        objective: episodes to `"loss"` and its parts; holds the head.
        head: the part that is trained, and kept in checkpoints.
        checkpoints: of this run.
        validation: done at the end of some epochs; None without held-out categories.
    """

    def __init__(
        self,
        options: HeadTrainingOptions,
        accelerator: Accelerator,
        objective: nn.Module,
        head: nn.Module,
        checkpoints: Checkpoints,
        validation: Validation | None,
    ) -> None:
        self.options = options
        self.accelerator = accelerator
        self.head = head
        self.checkpoints = checkpoints
        self.validation = validation
        self.steps = options.epochs * options.steps_per_epoch
        self.warmup = warmup_steps(options.steps_per_epoch, options.epochs)
        objective.train()
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        optimizer = build_optimizer(self.parameters, options.learning_rate)
        self.progress = Progress()
        if saved := checkpoints.load(accelerator.device):
            self.progress, weights, optimizer_state = saved
            self.head.load_state_dict(weights)
            optimizer.load_state_dict(optimizer_state)
        self.objective, self.optimizer = accelerator.prepare(objective, optimizer)

    def run(self, batches: Batches) -> Progress:
        """Train from the last checkpoint to the end."""
        progress, per_epoch = self.progress, self.options.steps_per_epoch
        bar = tqdm(
            total=self.steps,
            initial=progress.step,
            desc="Training",
            unit="step",
            disable=not self.accelerator.is_local_main_process,
        )
        started = time.perf_counter()
        with bar:
            for batch in batches.read_from(progress.step, self.steps):
                losses = self._step(batch)
                progress.losses.append(losses)
                progress.step += 1
                bar.set_postfix({name: f"{value:.3f}" for name, value in losses.items()}, refresh=False)
                bar.update()
                now = time.perf_counter()
                progress.seconds, started = progress.seconds + now - started, now
                if progress.step % per_epoch == 0:
                    self._end_epoch(progress.step // per_epoch)
                if self._checkpoint_is_due():
                    self._save()
        return progress

    def _step(self, batch: Batch) -> dict[str, float]:
        """Take one optimiser step; returns the mean losses over the whole batch, across processes."""
        accelerator, options = self.accelerator, self.options
        rate = rate_at(batch.step, self.steps, self.warmup, options.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        names: list[str] = []
        total = torch.zeros((), device=accelerator.device)
        parts = _split(batch.episodes, options.gradient_accumulation)
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.objective):
                losses = self.objective(part)
                share = batch.weight * len(part)
                # Gradients are averaged over the processes, but the shares add up to the batch.
                accelerator.backward(losses["loss"] * (share * accelerator.num_processes))
            names = list(losses)
            total = total + share * torch.stack([value.detach() for value in losses.values()])
        figures = dict(zip(names, accelerator.reduce(total, "sum").tolist(), strict=True))
        check_finite_losses(figures, batch.step)
        if options.max_grad_norm is not None:
            accelerator.clip_grad_norm_(self.parameters, options.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        accelerator.log({**figures, "learning_rate": rate}, step=batch.step)
        return figures

    def _end_epoch(self, epoch: int) -> None:
        options = self.options
        if options.model is None and options.method is None:  # a rival may learn as slowly as its authors let it
            means = [losses["loss"] for losses in self.progress.epoch_losses(options.steps_per_epoch)]
            check_falling_losses(means, -(-self.warmup // options.steps_per_epoch))
        due = epoch % options.validation_every == 0 or epoch == options.epochs
        if self.validation is not None and due:
            figures = self.validation()
            self.progress.validations.append({"epoch": epoch, "setups": figures})
            self.accelerator.log(
                {f"{setup}/{name}": value for setup, part in figures.items() for name, value in part["mean"].items()},
                step=self.progress.step,
            )

    def _checkpoint_is_due(self) -> bool:
        step, every = self.progress.step, self.options.checkpoint_steps
        return step % self.options.steps_per_epoch == 0 or (every > 0 and step % every == 0)

    def _save(self) -> None:
        if self.accelerator.is_main_process:
            self.checkpoints.save(self.progress, self.head.state_dict(), self.optimizer.state_dict())
        self.accelerator.wait_for_everyone()


def _split(episodes: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """At most `count` parts, equally long except for the last."""
    length = -(-len(episodes) // count)
    return [episodes[start : start + length] for start in range(0, len(episodes), length)]
