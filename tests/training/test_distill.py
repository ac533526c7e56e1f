"""Distillation from end to end, on a teacher of a few thousand weights."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import Dinov2Backbone

from modeling_ideal import IdealModel
from modeling_ideal.training.distill import LOG, STATE, Distillation, DistillationArguments, split_views
from modeling_ideal.training.distillation.agreement import centred_variance, distillation_loss, patch_cosines
from modeling_ideal.training.distillation.teacher import CachedTeacher

from .test_student import SIZE, wide_teacher


@pytest.fixture
def arguments(tmp_path):
    """A teacher, eight pictures, and half a dozen steps."""
    wide_teacher().save_pretrained(tmp_path / "teacher")
    (tmp_path / "pictures").mkdir()
    generator = np.random.default_rng(0)
    for index in range(8):
        pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((SIZE, SIZE)).save(tmp_path / "pictures" / f"{index}.png")
    return DistillationArguments(
        teacher=str(tmp_path / "teacher"),
        images=[str(tmp_path / "pictures")],
        output_dir=str(tmp_path / "student"),
        cache=str(tmp_path / "cache"),
        stage=2,
        width=16,
        image_size=SIZE,
        crops=3,
        textures=2,
        fit_images=4,
        held_out=0.25,
        steps=6,
        batch_size=4,
        learning_rate=2e-3,
        save_every=2,
    )


def log_of(arguments):
    return [json.loads(line) for line in (Path(arguments.output_dir) / LOG).read_text().splitlines()]


def weights_of(arguments):
    return load_file(Path(arguments.output_dir) / "model.safetensors")


def test_the_student_learns_and_is_a_backbone(arguments):
    arguments = replace(arguments, steps=40, save_every=20)
    agreement = Distillation(arguments).run()
    log = log_of(arguments)
    assert [line["step"] for line in log] == [0, 20, 40]
    assert log[-1]["cosine"] == agreement["cosine"] > log[0]["cosine"]
    assert log[-1]["centred_cosine"] == agreement["centred_cosine"] > log[0]["centred_cosine"]
    student = Dinov2Backbone.from_pretrained(arguments.output_dir)
    assert student(torch.zeros(1, 3, SIZE, SIZE)).feature_maps[0].shape == (1, 16, 8, 8)
    model = IdealModel.from_backbone(arguments.output_dir, image_size=SIZE, num_attention_heads=4)
    assert model.extract_features(torch.zeros(1, 3, SIZE, SIZE)).shape == (1, 8, 8, 16)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(arguments, tmp_path, monkeypatch):
    undisturbed = replace(arguments, output_dir=str(tmp_path / "undisturbed"))
    Distillation(undisturbed).run()
    learn = Distillation._learn

    def stop(self, images):
        if self.step == 5:  # after a step that was never saved
            raise KeyboardInterrupt
        return learn(self, images)

    monkeypatch.setattr(Distillation, "_learn", stop)
    with pytest.raises(KeyboardInterrupt):
        Distillation(arguments).run()
    monkeypatch.setattr(Distillation, "_learn", learn)
    resumed = Distillation(arguments)
    assert resumed.step == 4
    assert resumed.run() == {name: log_of(undisturbed)[-1][name] for name in ("cosine", "centred_cosine")}
    weights, wanted = weights_of(arguments), weights_of(undisturbed)
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)


def test_a_run_is_not_resumed_with_other_arguments(arguments):
    Distillation(arguments).run()
    Distillation(replace(arguments, save_every=100))
    with pytest.raises(ValueError, match=rf"{STATE}: expected .*started with, {{'steps': 6}}, got {{'steps': 7}}"):
        Distillation(replace(arguments, steps=7))


def test_two_processes_make_the_student_of_one(arguments, tmp_path):
    Distillation(arguments).run()
    two = replace(arguments, output_dir=str(tmp_path / "two"))
    options = [f"--{name}={value}" for name, value in asdict(two).items() if name != "images"]
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, "-m", "modeling_ideal.training.distill", *options, "--images", *two.images]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Fitting the student") == done.stdout.count("held-out pictures") == 1
    losses, wanted_losses = ([line["loss"] for line in log_of(run)[1:]] for run in (two, arguments))
    assert losses == pytest.approx(wanted_losses, abs=1e-5)
    weights, wanted = weights_of(two), weights_of(arguments)
    # Attention does not depend on the keys' bias: its gradient is nothing but rounding.
    telling = [name for name in wanted if not name.endswith("key.bias")]
    assert all(torch.allclose(weights[name], wanted[name], atol=1e-5) for name in telling)


def test_the_teacher_encodes_a_picture_once(arguments, picture, monkeypatch):
    teacher = CachedTeacher(arguments.teacher, arguments.stage, SIZE, arguments.cache)
    first = teacher([picture, picture.rotate(90)])
    with torch.no_grad():
        features = wide_teacher()(teacher.processor(query=[picture])["query"]).feature_maps[0]
    torch.testing.assert_close(first[:1], features.permute(0, 2, 3, 1), atol=2e-2, rtol=2e-3)
    monkeypatch.setattr(teacher, "_encoder", None)
    assert torch.equal(teacher([picture.rotate(90), picture]), first.flip(0))


def test_held_out_pictures_are_never_learnt_from(arguments):
    training, validation = split_views(arguments)
    assert (len(training.files), len(validation.files)) == (6, 2)
    assert not set(training.files) & set(validation.files)
    assert len(split_views(replace(arguments, validation_images=1))[1]) == 1


def test_the_loss_by_hand():
    target = torch.tensor([[3.0, 1.0], [1.0, 3.0]]).view(1, 1, 2, 2)  # mean (2, 2), centred (1, -1) and (-1, 1)
    variance = centred_variance(target)
    assert variance == 1
    assert distillation_loss(target, target, variance).item() == pytest.approx(0, abs=1e-6)
    mapped = torch.tensor([[3.0, 2.0], [1.0, 3.0]]).view(1, 1, 2, 2)
    cosine, centred = patch_cosines(mapped, target)
    assert cosine.flatten().tolist() == pytest.approx([11 / 130**0.5, 1])
    assert centred.flatten().tolist() == pytest.approx([1 / 2**0.5, 1])  # (1, 0) to (1, -1)
    smooth = 0.5 * 1**2 / 4  # one of four values is off by 1
    assert distillation_loss(mapped, target, variance).item() == pytest.approx(
        2 - cosine.mean() - centred.mean() + smooth
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"held_out": 1.0}, "held_out: expected a share between 0 and 1, got 1.0"),
    ],
)
def test_arguments_that_make_no_sense(arguments, change, message):
    with pytest.raises(ValueError, match=message):
        replace(arguments, **change)


def test_one_picture_is_not_enough(arguments, tmp_path):
    (tmp_path / "lonely").mkdir()
    (tmp_path / "pictures" / "0.png").rename(tmp_path / "lonely" / "0.png")
    with pytest.raises(ValueError, match=r"images: expected at least 2 pictures, one of them to validate on, got 1"):
        Distillation(replace(arguments, images=[str(tmp_path / "lonely")]))
