"""Distillation: a small, fast backbone learns the patch features of a large one from unlabelled pictures.

    accelerate launch -m modeling_ideal.training.distill --teacher facebook/dinov2-small --images PICTURES \\
        --output_dir STUDENT

The student's folder is a backbone like any other: `IdealModel.from_backbone(STUDENT)`.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from PIL import Image
from torch import Tensor
from tqdm import tqdm
from transformers import HfArgumentParser, get_cosine_schedule_with_warmup

from ..backbone import load_backbone_config
from ..writing.files import write_atomically
from .distillation.agreement import centred_variance, distillation_loss, mapped_features, measure_agreement
from .distillation.student import fit_to_teacher, new_student, student_config
from .distillation.teacher import CachedTeacher
from .distillation.views import Views, picture_files

STATE = "distillation.pt"
LOG = "distillation.jsonl"
MAY_CHANGE = {"cache", "output_dir", "save_every"}
"""Arguments that make no difference to the student."""
SPLITTING, FITTING, ORDERING = 1, 2, 3
"""What a random generator is for: no two give the same numbers."""


@dataclass
class DistillationArguments:
    """What makes a student."""

    teacher: str = field(metadata={"help": "DINOv2 backbone to learn from: a folder or a name on the Hub"})
    images: list[str] = field(metadata={"help": "folders of unlabelled pictures, read with all below them"})
    output_dir: str = field(metadata={"help": "folder of the student; a run that was stopped goes on from it"})
    cache: str = field(
        default="~/.cache/modeling_ideal/distillation", metadata={"help": "folder for the teacher's features"}
    )
    stage: int = field(default=9, metadata={"help": "layer of the teacher to learn, before any final norm"})
    width: int = field(default=192, metadata={"help": "channels: a multiple of the teacher's head size"})
    image_size: int = field(default=448, metadata={"help": "side of the pictures in pixels"})
    crops: int = field(default=4000, metadata={"help": "changed parts of the pictures to learn from as well"})
    textures: int = field(default=400, metadata={"help": "rendered textures to learn from as well"})
    fit_images: int = field(default=96, metadata={"help": "views on which the student is fitted before any step"})
    held_out: float = field(default=0.05, metadata={"help": "share of the pictures kept for validation"})
    validation_images: int = field(default=32, metadata={"help": "at most so many of them are used"})
    steps: int = field(default=20_000, metadata={"help": "optimiser steps in all"})
    batch_size: int = field(default=8, metadata={"help": "pictures a step, over all processes"})
    learning_rate: float = field(default=1e-4, metadata={"help": "at its highest, after warming up"})
    warmup: float = field(default=0.1, metadata={"help": "share of the steps in which the learning rate rises"})
    save_every: int = field(default=200, metadata={"help": "steps from one saved state to the next"})
    seed: int = field(default=0, metadata={"help": "of views, held-out pictures and order"})

    def __post_init__(self) -> None:
        for name in ("fit_images", "validation_images", "steps", "batch_size", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out: expected a share between 0 and 1, got {self.held_out}")


class Distillation:
    """One run: the student, what it learns from, and how far it has come."""

    def __init__(self, arguments: DistillationArguments) -> None:
        self.arguments = arguments
        self.accelerator = Accelerator()
        processes = self.accelerator.num_processes
        if arguments.batch_size % processes:
            raise ValueError(
                f"batch_size: expected a multiple of the number of processes, {processes}, got {arguments.batch_size}"
            )
        self.output = Path(arguments.output_dir)
        state = load_state(self.output / STATE, arguments)
        self.training, self.validation = split_views(arguments)
        teacher_config = load_backbone_config(arguments.teacher, {})
        config = student_config(teacher_config, arguments.stage, arguments.width, arguments.image_size)
        self.teacher = CachedTeacher(arguments.teacher, arguments.stage, arguments.image_size, arguments.cache)
        self.teacher.backbone.to(self.accelerator.device)
        self.student = new_student(config).to(self.accelerator.device)
        trained = [parameter for parameter in self.student.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, arguments.learning_rate, weight_decay=0.0)
        # Not prepared: Accelerate would step it once for every process.
        self.schedule = get_cosine_schedule_with_warmup(
            optimizer, int(arguments.warmup * arguments.steps), arguments.steps
        )
        self.step = 0
        if state is None:
            self.basis = self._fit()
        else:
            self.step, self.basis = state["step"], state["basis"].to(self.accelerator.device)
            self.student.load_state_dict(state["student"])
            optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
        self.model, self.optimizer = self.accelerator.prepare(self.student, optimizer)

    def run(self) -> dict[str, float]:
        """All steps that are left; returns the agreement with the teacher on held-out pictures."""
        agreement = self._save(loss=None) if self.step == 0 else self._agreement()
        last = self.arguments.steps
        hidden = not self.accelerator.is_main_process
        with tqdm(total=last, initial=self.step, desc="Distilling", unit="step", disable=hidden) as progress:
            while self.step < last:
                loss = self._learn(self._batch())
                progress.update()
                progress.set_postfix(loss=f"{loss:.4f}", **{name: f"{value:.4f}" for name, value in agreement.items()})
                if self.step % self.arguments.save_every == 0 or self.step == last:
                    agreement = self._save(loss)
        return agreement

    def _fit(self) -> Tensor:
        """The student as it starts; returns the basis of its features in the teacher's space."""
        self.accelerator.print(f"Fitting the student to the teacher on {self.arguments.fit_images} views")
        order = np.random.default_rng((self.arguments.seed, FITTING)).permutation(len(self.training))
        images = [self.training[index] for index in order[: self.arguments.fit_images].tolist()]
        pixels = self.teacher.processor(query=images)["query"].to(self.accelerator.device)
        return broadcast(fit_to_teacher(self.student, self.teacher.backbone, pixels))

    def _batch(self) -> list[Image.Image]:
        """This process's share of the next views: all in a random order, then all in another one, and so on."""
        size, views, seed = self.arguments.batch_size, len(self.training), self.arguments.seed
        places = np.arange(self.step * size, (self.step + 1) * size)
        orders = {
            epoch: np.random.default_rng((seed, ORDERING, epoch)).permutation(views)
            for epoch in np.unique(places // views).tolist()
        }
        share = places[self.accelerator.process_index :: self.accelerator.num_processes].tolist()
        return [self.training[int(orders[place // views][place % views])] for place in share]

    def _learn(self, images: list[Image.Image]) -> float:
        """One step; returns the loss."""
        pixels = self.teacher.processor(query=images)["query"].to(self.accelerator.device)
        target = self.teacher(images).to(self.accelerator.device)
        variance = self.accelerator.reduce(centred_variance(target), "mean")  # of the whole batch
        loss = distillation_loss(mapped_features(self.model, pixels, self.basis), target, variance)
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.step += 1
        return self.accelerator.reduce(loss.detach(), "mean").item()

    def _agreement(self) -> dict[str, float]:
        return measure_agreement(self.student, self.basis, self.teacher, self.validation)

    def _save(self, loss: float | None) -> dict[str, float]:
        """Validate, and save the student and all that a resumed run needs; returns the agreement."""
        agreement = self._agreement()
        if self.accelerator.is_main_process:
            self.output.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.output) as temporary:
                self.student.save_pretrained(temporary)
                for file in Path(temporary).iterdir():
                    os.replace(file, self.output / file.name)  # whole or not at all, so it can be loaded at any time
            state = {
                "step": self.step,
                "basis": self.basis.cpu(),
                "student": self.student.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "arguments": asdict(self.arguments),
            }
            buffer = BytesIO()
            torch.save(state, buffer)
            write_atomically(self.output / STATE, buffer.getvalue())
            with open(self.output / LOG, "a") as log:
                log.write(json.dumps({"step": self.step, "loss": loss, **agreement}) + "\n")
        self.accelerator.wait_for_everyone()
        return agreement


def load_state(file: Path, arguments: DistillationArguments) -> dict | None:
    """The last saved state of a run with these arguments, None where there is none."""
    if not file.exists():
        return None
    state = torch.load(file, map_location="cpu", weights_only=True)
    before, now = state["arguments"], asdict(arguments)
    changed = [name for name in now if name not in MAY_CHANGE and before[name] != now[name]]
    if changed:
        raise ValueError(
            f"{file}: expected the arguments that the run was started with, "
            f"{ {name: before[name] for name in changed} }, got { {name: now[name] for name in changed} }; "
            "give another output_dir to start anew"
        )
    return state


def split_views(arguments: DistillationArguments) -> tuple[Views, Views]:
    """Views to learn from, and pictures as they are to validate on; no picture is in both."""
    files = picture_files(arguments.images)
    if len(files) < 2:
        raise ValueError(f"images: expected at least 2 pictures, one of them to validate on, got {len(files)}")
    order = np.random.default_rng((arguments.seed, SPLITTING)).permutation(len(files))
    held_out = min(max(1, round(arguments.held_out * len(files))), len(files) - 1)
    training = sorted(files[index] for index in order[held_out:])
    validation = [files[index] for index in order[:held_out]][: arguments.validation_images]
    size, seed = arguments.image_size, arguments.seed
    return Views(training, arguments.crops, arguments.textures, size, seed), Views(validation, 0, 0, size, seed)


def main() -> None:
    """Distil by the arguments of the command line."""
    (arguments,) = HfArgumentParser(DistillationArguments).parse_args_into_dataclasses()
    distillation = Distillation(arguments)
    agreement = distillation.run()
    distillation.accelerator.print(
        f"{arguments.output_dir}: cosine to the teacher on {len(distillation.validation)} held-out pictures "
        f"{agreement['cosine']:.4f}, of the centred features {agreement['centred_cosine']:.4f}"
    )


if __name__ == "__main__":
    main()
