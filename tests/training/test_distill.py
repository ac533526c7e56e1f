"""Distillation from end to end, on a teacher of a few thousand weights."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import Dinov2Backbone

from modeling_ideal import IdealModel
from modeling_ideal.training.distillation.agreement import centred_variance, distillation_loss, patch_cosines
from modeling_ideal.training.distillation.loop import Distillation
from modeling_ideal.training.distillation.teacher import CachedTeacher
from modeling_ideal.training.distillation.views import split_views

from .conftest import SIDE, distillation_log, wide_teacher


def weights_of(options):
    return load_file(options.output / "model.safetensors")


def test_the_student_learns_and_is_a_backbone(distillation_options):
    chosen = distillation_options(steps=40, save_every=20)
    agreement = Distillation(chosen).run()
    log = distillation_log(chosen)
    assert [line["step"] for line in log] == [0, 20, 40]
    assert log[-1]["cosine"] == agreement["cosine"] > log[0]["cosine"]
    assert log[-1]["centred_cosine"] == agreement["centred_cosine"] > log[0]["centred_cosine"]
    student = Dinov2Backbone.from_pretrained(chosen.output_dir)
    assert student(torch.zeros(1, 3, SIDE, SIDE)).feature_maps[0].shape == (1, 16, 8, 8)
    model = IdealModel.from_backbone(chosen.output_dir, image_size=SIDE, num_attention_heads=4)
    assert model.extract_features(torch.zeros(1, 3, SIDE, SIDE)).shape == (1, 8, 8, 16)


def test_without_steps_the_student_is_what_the_fit_makes_it(distillation_options):
    chosen = distillation_options(steps=0)
    agreement = Distillation(chosen).run()
    weights = weights_of(chosen)
    assert Distillation(chosen).run() == agreement  # started again, there is nothing left to do
    assert [line["step"] for line in distillation_log(chosen)] == [0]
    assert all(torch.equal(weights_of(chosen)[name], weights[name]) for name in weights)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(distilled, distillation_options, monkeypatch):
    chosen = distillation_options()
    learn = Distillation._learn

    def stop(self, images):
        if self.step == 5:  # after a step that was never saved
            raise KeyboardInterrupt
        return learn(self, images)

    monkeypatch.setattr(Distillation, "_learn", stop)
    with pytest.raises(KeyboardInterrupt):
        Distillation(chosen).run()
    monkeypatch.setattr(Distillation, "_learn", learn)
    resumed = Distillation(chosen)
    assert resumed.step == 4
    assert resumed.run() == {name: distillation_log(distilled)[-1][name] for name in ("cosine", "centred_cosine")}
    weights, wanted = weights_of(chosen), weights_of(distilled)
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)


def test_a_run_is_not_resumed_with_other_options(distilled):
    assert Distillation(replace(distilled, save_every=100)).step == 6
    with pytest.raises(ValueError, match=r"holds a run with other options \(steps: 6 there, 7 now\): repeat those"):
        Distillation(replace(distilled, steps=7))


@pytest.mark.parametrize("normed", [True, False])
def test_the_teacher_encodes_a_picture_once(distillation_options, picture, monkeypatch, normed):
    chosen = distillation_options()
    teacher = CachedTeacher(chosen.teacher, chosen.stage, normed, SIDE, chosen.cache)
    first = teacher([picture, picture.rotate(90)])
    with torch.no_grad():
        backbone = wide_teacher(apply_layernorm=normed)
        features = backbone(teacher.processor(query=[picture])["query"]).feature_maps[0].permute(0, 2, 3, 1)
    wanted = features if normed else features - features.mean(-1, keepdim=True)
    torch.testing.assert_close(first[:1], wanted, atol=2e-2, rtol=2e-3)
    monkeypatch.setattr(teacher, "_encoder", None)
    assert torch.equal(teacher([picture.rotate(90), picture]), first.flip(0))


def test_held_out_pictures_are_never_learnt_from(distillation_options):
    training, validation = split_views(distillation_options())
    assert (len(training.files), len(validation.files)) == (6, 2)
    assert not set(training.files) & set(validation.files)
    assert len(split_views(distillation_options(validation_images=1))[1]) == 1


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


def test_one_picture_is_not_enough(distillation_options, tmp_path):
    (tmp_path / "lonely").mkdir()
    shutil.copy(Path(distillation_options().images[0], "0.png"), tmp_path / "lonely")
    with pytest.raises(ValueError, match=r"images: expected at least 2 pictures, one of them to validate on, got 1"):
        Distillation(distillation_options(images=[str(tmp_path / "lonely")]))
