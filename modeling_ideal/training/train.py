"""Training of the Intrinsic Deviation Encoder on cached features, with Accelerate.

    accelerate launch -m modeling_ideal.training.train --source DIR --layout mvtec --backbone NAME --output_dir OUT

The backbone runs once an image, to fill the feature cache, and never in the loop. A run is a function of its
arguments; stopped at any moment, it goes on from its last checkpoint when it is started again.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from tqdm import tqdm

from ..modeling_ideal import IdealModel
from .encoder import BackboneEncoder
from .head.batches import Batch, Batches
from .head.checkpoints import Checkpoints, Progress
from .head.loss_checks import check_falling, check_finite
from .head.objective import EpisodeLoss
from .head.options import TrainingArguments, add_arguments, read_arguments
from .head.report import claim_output, epoch_losses, finished_record, make_record, summary, write_arguments, write_run
from .head.schedule import build_optimizer, rate_at, warmup_steps
from .head.source import Source, draw_episodes, load_source
from .head.starting_point import load_start
from .head.validation import validate, validation_sets


class Trainer:
    """The loop: steps, and at the end of each epoch the checks, validation and a checkpoint."""

    def __init__(
        self,
        arguments: TrainingArguments,
        accelerator: Accelerator,
        model: IdealModel,
        checkpoints: Checkpoints,
        held_out: Source | None,
    ) -> None:
        self.arguments = arguments
        self.accelerator = accelerator
        self.model = model.train()
        self.checkpoints = checkpoints
        self.held_out = held_out
        self.validation_sets = (
            [] if held_out is None else validation_sets(held_out, arguments.setups, arguments.validation_seeds)
        )
        self.steps = arguments.epochs * arguments.steps_per_epoch
        self.warmup = warmup_steps(arguments.steps_per_epoch, arguments.epochs)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = build_optimizer(self.parameters, arguments.learning_rate)
        self.progress = Progress()
        if saved := checkpoints.load(accelerator.device):
            self.progress, head, optimizer_state = saved
            model.deviation_encoder.load_state_dict(head)
            optimizer.load_state_dict(optimizer_state)
        self.objective, self.optimizer = accelerator.prepare(EpisodeLoss(model), optimizer)

    def fit(self, batches: Batches) -> Progress:
        """Train from where the last checkpoint left off to the end."""
        progress, per_epoch = self.progress, self.arguments.steps_per_epoch
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
        """One optimiser step; the mean losses over the whole batch, of all processes."""
        accelerator, arguments = self.accelerator, self.arguments
        rate = rate_at(batch.step, self.steps, self.warmup, arguments.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        names: list[str] = []
        total = torch.zeros((), device=accelerator.device)
        parts = _split(batch.episodes, arguments.gradient_accumulation)
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.objective):
                losses = self.objective(part)
                share = batch.weight * len(part)
                # Gradients are averaged over the processes; their sum is what is wanted.
                accelerator.backward(losses["loss"] * (share * accelerator.num_processes))
            names = list(losses)
            total = total + share * torch.stack([value.detach() for value in losses.values()])
        figures = dict(zip(names, accelerator.reduce(total, "sum").tolist(), strict=True))
        check_finite(figures, batch.step)
        if arguments.max_grad_norm is not None:
            accelerator.clip_grad_norm_(self.parameters, arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        accelerator.log({**figures, "learning_rate": rate}, step=batch.step)
        return figures

    def _end_epoch(self, epoch: int) -> None:
        arguments = self.arguments
        if arguments.model is None:
            means = [losses["loss"] for losses in epoch_losses(self.progress, arguments.steps_per_epoch)]
            check_falling(means, -(-self.warmup // arguments.steps_per_epoch))
        due = epoch % arguments.validation_every == 0 or epoch == arguments.epochs
        if self.held_out is not None and due:
            figures = validate(self.model, self.held_out, self.validation_sets)
            self.progress.validations.append({"epoch": epoch, "setups": figures})
            self.accelerator.log(
                {f"{setup}/{name}": value for setup, part in figures.items() for name, value in part["mean"].items()},
                step=self.progress.step,
            )

    def _checkpoint_is_due(self) -> bool:
        step, every = self.progress.step, self.arguments.checkpoint_steps
        return step % self.arguments.steps_per_epoch == 0 or (every > 0 and step % every == 0)

    def _save(self) -> None:
        if self.accelerator.is_main_process:
            head = self.model.deviation_encoder.state_dict()
            self.checkpoints.save(self.progress, head, self.optimizer.state_dict())
        self.accelerator.wait_for_everyone()


def _split(episodes: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """At most `count` parts of about the same length."""
    length = -(-len(episodes) // count)
    return [episodes[start : start + length] for start in range(0, len(episodes), length)]


def train(arguments: TrainingArguments) -> dict[str, Any]:
    """Run a training, or the rest of it; returns its record, which is also in `output_dir / "training.json"`."""
    accelerator = Accelerator(
        mixed_precision=arguments.mixed_precision,
        log_with=arguments.trackers or None,
        project_dir=str(arguments.output / "logs"),
    )
    claim_output(arguments)
    if record := finished_record(arguments):
        return record
    accelerator.wait_for_everyone()  # all have looked before the first one writes
    if accelerator.is_main_process:
        write_arguments(arguments)
    model, processor = load_start(arguments)
    model.to(accelerator.device)
    source, held_out = load_source(arguments, BackboneEncoder(model, processor))
    episodes, sentences = draw_episodes(source, arguments)
    for sentence in sentences:
        accelerator.print(sentence)
    if arguments.trackers:
        accelerator.init_trackers("ideal", {name: str(value) for name, value in asdict(arguments).items()})
    checkpoints = Checkpoints(arguments.output / "checkpoints", arguments.keep_checkpoints, source.digest)
    trainer = Trainer(arguments, accelerator, model, checkpoints, held_out)
    batches = Batches(
        episodes,
        source.cache,
        arguments.batch_size,
        accelerator.device,
        accelerator.process_index,
        accelerator.num_processes,
    )
    progress = trainer.fit(batches)
    record = make_record(arguments, progress, model.eval(), source, accelerator.num_processes, sentences)
    if accelerator.is_main_process:
        write_run(arguments, record, model, processor)
    accelerator.end_training()
    return record


def run(parsed: argparse.Namespace) -> int:
    """`ideal train`: from the parsed arguments to the exit code."""
    arguments = read_arguments(parsed)
    record = train(arguments)
    if PartialState().is_main_process:
        print(summary(arguments, record))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command line of this module, the same as that of `ideal train`."""
    parser = argparse.ArgumentParser(prog="modeling_ideal.training.train", description="Train IDEAL on episodes.")
    add_arguments(parser)
    try:
        return run(parser.parse_args(words))
    except (ValueError, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
