"""The distillation loop with Accelerate: an initial fit, then optimiser steps, validated and saved at intervals."""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast
from PIL import Image
from torch import Tensor
from tqdm import tqdm
from transformers import get_cosine_schedule_with_warmup

from ...backbone import load_backbone_config
from ...writing.places import check_folder
from ..launch import make_accelerator
from ..options import check_same_run
from ..state_files import read_state, write_state
from .agreement import centred_variance, distillation_loss, mapped_features, measure_agreement
from .options import WITHOUT_EFFECT, DistillationOptions
from .student import fit_to_teacher, new_student, student_config
from .teacher import CachedTeacher
from .views import Purpose, split_views

STATE = "distillation.pt"
LOG = "distillation.jsonl"


class Distillation:
    """A student in training: its teacher, the pictures it learns from, and its progress."""

    def __init__(self, options: DistillationOptions) -> None:
        self.options = options
        self.accelerator = make_accelerator(options.device)
        processes = self.accelerator.num_processes
        if options.batch_size % processes:
            raise ValueError(
                f"batch_size: expected a multiple of the number of processes, {processes}, got {options.batch_size}"
            )
        state = load_state(options)
        self.training, self.validation = split_views(options)
        teacher_config = load_backbone_config(options.teacher, {})
        config = student_config(teacher_config, options.stage, options.width, options.image_size, options.mlp_ratio)
        self.teacher = CachedTeacher(
            options.teacher, config.num_hidden_layers, config.apply_layernorm, options.image_size, options.cache
        )
        self.teacher.backbone.to(self.accelerator.device)
        self.student = new_student(config).to(self.accelerator.device)
        trained = [parameter for parameter in self.student.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, options.learning_rate, weight_decay=0.0)
        # Not prepared: Accelerate would step it once for every process.
        self.schedule = get_cosine_schedule_with_warmup(optimizer, int(options.warmup * options.steps), options.steps)
        self.step = 0
        self._is_new = state is None
        if state is None:
            self.basis = self._fit()
        else:
            self.step, self.basis = state["step"], state["basis"].to(self.accelerator.device)
            self.student.load_state_dict(state["student"])
            optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
        self.wrapped_student, self.optimizer = self.accelerator.prepare(self.student, optimizer)

    def run(self) -> dict[str, float]:
        """Take the remaining steps; returns the agreement with the teacher on held-out pictures."""
        agreement = self._save(loss=None) if self._is_new else self._agreement()
        last = self.options.steps
        hidden = not self.accelerator.is_main_process
        with tqdm(total=last, initial=self.step, desc="Distilling", unit="step", disable=hidden) as bar:
            while self.step < last:
                loss = self._learn(self._batch())
                bar.update()
                bar.set_postfix(loss=f"{loss:.4f}", **{name: f"{value:.4f}" for name, value in agreement.items()})
                if self.step % self.options.save_every == 0 or self.step == last:
                    agreement = self._save(loss)
        return agreement

    def _fit(self) -> Tensor:
        """Fit the new student to the teacher; returns the basis (C, c) of its features in the teacher's space."""
        self.accelerator.print(f"Fitting the student to the teacher on {self.options.fit_images} views")
        order = np.random.default_rng((self.options.seed, Purpose.FITTING)).permutation(len(self.training))
        images = [self.training[index] for index in order[: self.options.fit_images].tolist()]
        pixels = self.teacher.processor(query=images)["query"].to(self.accelerator.device)
        return broadcast(fit_to_teacher(self.student, self.teacher.backbone, pixels))

    def _batch(self) -> list[Image.Image]:
        """This process's share of the next views: all views in random order, then in another one, and so on."""
        size, views, seed = self.options.batch_size, len(self.training), self.options.seed
        positions = np.arange(self.step * size, (self.step + 1) * size)
        orders = {
            epoch: np.random.default_rng((seed, Purpose.ORDERING, epoch)).permutation(views)
            for epoch in np.unique(positions // views).tolist()
        }
        share = positions[self.accelerator.process_index :: self.accelerator.num_processes].tolist()
        return [self.training[int(orders[position // views][position % views])] for position in share]

    def _learn(self, images: list[Image.Image]) -> float:
        """Take one step; returns the loss over the whole batch."""
        pixels = self.teacher.processor(query=images)["query"].to(self.accelerator.device)
        target = self.teacher(images).to(self.accelerator.device)
        variance = self.accelerator.reduce(centred_variance(target), "mean")  # of the whole batch
        loss = distillation_loss(mapped_features(self.wrapped_student, pixels, self.basis), target, variance)
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.wrapped_student.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.step += 1
        return self.accelerator.reduce(loss.detach(), "mean").item()

    def _agreement(self) -> dict[str, float]:
        return measure_agreement(self.student, self.basis, self.teacher, self.validation)

    def _save(self, loss: float | None) -> dict[str, float]:
        """Validate, and save the student and what a resumed run needs; returns the agreement."""
        agreement = self._agreement()
        if self.accelerator.is_main_process:
            output = self.options.output
            output.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=output) as temporary:
                self.student.save_pretrained(temporary)
                for file in Path(temporary).iterdir():
                    os.replace(file, output / file.name)  # in one step, so that the student can be loaded at any time
            state = {
                "step": self.step,
                "basis": self.basis.cpu(),
                "student": self.student.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "arguments": asdict(self.options),
            }
            write_state(output / STATE, state)
            with open(output / LOG, "a") as log:
                log.write(json.dumps({"step": self.step, "loss": loss, **agreement}) + "\n")
        self.accelerator.wait_for_everyone()
        return agreement


def load_state(options: DistillationOptions) -> dict[str, Any] | None:
    """The last saved state of the run in the output folder, or None if there is none.

    ValueError if the folder cannot be written to, or holds another model, which the student would replace.
    """
    check_folder(options.output, "--output_dir")
    file = options.output / STATE
    if not file.exists():
        for name in ("config.json", "model.safetensors"):
            if (options.output / name).exists():
                raise ValueError(
                    f"--output_dir: expected a new folder or that of a distillation, got {str(options.output)!r} with "
                    f"{name!r} of another"
                )
        return None
    state = read_state(file, "cpu", ("step", "basis", "student", "optimizer", "schedule", "arguments"))
    check_same_run(options, state["arguments"], WITHOUT_EFFECT, options.output)
    return state
