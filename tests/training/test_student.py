"""The student as it starts: the teacher seen through its principal directions."""

import pytest
import torch
import torch.nn.functional as F

from modeling_ideal.training.distillation import student as student_module
from modeling_ideal.training.distillation.student import fit_to_teacher, new_student, student_config

from ..conftest import random_images
from .conftest import SIDE, wide_teacher


@torch.no_grad()
def features(backbone, pixels):
    """(n h w, C)."""
    return backbone(pixels).feature_maps[0].permute(0, 2, 3, 1).flatten(0, 2)


def test_a_student_of_full_width_is_nearly_the_teacher_with_its_final_norm():
    """Nearly: the fit is of finitely many tokens."""
    teacher = wide_teacher(apply_layernorm=True)
    torch.nn.init.uniform_(teacher.layernorm.weight, 0.5, 2)
    torch.nn.init.normal_(teacher.layernorm.bias)
    student = new_student(student_config(teacher.config, stage=2, width=32, image_size=SIDE, mlp_ratio=4))
    assert torch.equal(fit_to_teacher(student, teacher, random_images(24)), torch.eye(32))
    unseen = random_images(4, seed=1)
    got, wanted = features(student, unseen), features(teacher, unseen)
    assert F.cosine_similarity(got, wanted, dim=-1).mean() > 0.999
    torch.testing.assert_close(got.norm(dim=-1), wanted.norm(dim=-1), atol=0, rtol=0.05)


def test_a_narrower_basis_is_orthonormal_and_has_no_mean():
    teacher = wide_teacher()
    student = new_student(student_config(teacher.config, stage=2, width=16, image_size=SIDE, mlp_ratio=4))
    basis = fit_to_teacher(student, teacher, random_images(24))
    torch.testing.assert_close(basis.T @ basis, torch.eye(16) - 1 / 16, atol=1e-5, rtol=0)
    assert not student.config.apply_layernorm


def test_the_basis_holds_what_carries_the_features():
    """A teacher that moves in 15 of its 32 channels alone loses nothing at half the width, but for their mean."""
    teacher = wide_teacher()
    dead = torch.arange(32) >= 15
    with torch.no_grad():
        for name in ("cls_token", "position_embeddings"):
            getattr(teacher.embeddings, name)[..., dead] = 0
        for part in (
            teacher.embeddings.patch_embeddings.projection.weight,
            teacher.embeddings.patch_embeddings.projection.bias,
        ):
            part[dead] = 0
        for layer in teacher.encoder.layer:
            layer.layer_scale1.lambda1[dead] = 0
            layer.layer_scale2.lambda1[dead] = 0
    student = new_student(student_config(teacher.config, stage=2, width=16, image_size=SIDE, mlp_ratio=4))
    basis = fit_to_teacher(student, teacher, random_images(24))
    torch.testing.assert_close(basis.sum(0), torch.zeros(16), atol=1e-5, rtol=0)
    torch.testing.assert_close(basis.sum(1), torch.zeros(32), atol=1e-5, rtol=0)
    target = features(teacher, random_images(2, seed=1)) @ (torch.eye(32) - 1 / 32)
    torch.testing.assert_close(target @ basis @ basis.T, target, atol=1e-4, rtol=1e-4)


def test_fitting_is_worth_more_than_chance():
    teacher = wide_teacher()
    config = student_config(teacher.config, stage=2, width=16, image_size=SIDE, mlp_ratio=4)
    fitted, random = new_student(config), new_student(config)
    basis = fit_to_teacher(fitted, teacher, random_images(24))
    unseen = random_images(4, seed=1)
    cosines = [
        F.cosine_similarity(features(student, unseen) @ basis.T, features(teacher, unseen), dim=-1).mean()
        for student in (fitted, random)
    ]
    assert cosines[0] > 0.7
    assert cosines[1] < 0.5


def test_units_without_effect_are_left_out_of_a_smaller_mlp():
    """A teacher of which half the units move nothing loses none of what it does, whichever half it is."""
    teacher = wide_teacher()
    with torch.no_grad():
        for index, layer in enumerate(teacher.encoder.layer):
            layer.mlp.fc2.weight[:, torch.randperm(128, generator=torch.Generator().manual_seed(index))[:64]] = 0
    whole, half = (
        new_student(student_config(teacher.config, stage=2, width=32, image_size=SIDE, mlp_ratio=ratio))
        for ratio in (4, 2)
    )
    basis = fit_to_teacher(whole, teacher, random_images(24))
    torch.testing.assert_close(fit_to_teacher(half, teacher, random_images(24)), basis)
    assert [tuple(layer.mlp.fc1.weight.shape) for layer in half.encoder.layer] == [(64, 32), (64, 32)]
    unseen = random_images(4, seed=1)
    assert F.cosine_similarity(features(half, unseen), features(whole, unseen), dim=-1).mean() > 0.999


def test_a_smaller_mlp_is_trained_to_make_up_for_what_it_lacks(monkeypatch):
    teacher = wide_teacher(apply_layernorm=True)
    images, unseen = random_images(400), random_images(8, seed=1)
    cosines = []
    for rate in (1e-9, student_module.RATE):
        monkeypatch.setattr(student_module, "RATE", rate)
        student = new_student(student_config(teacher.config, stage=2, width=32, image_size=SIDE, mlp_ratio=2))
        basis = fit_to_teacher(student, teacher, images)
        mapped, target = features(student, unseen) @ basis.T, features(teacher, unseen)
        cosines.append(F.cosine_similarity(mapped, target, dim=-1).mean())
    assert cosines[1] > cosines[0]


def test_only_the_linear_maps_of_the_layers_are_trained():
    student = new_student(student_config(wide_teacher().config, stage=2, width=16, image_size=SIDE, mlp_ratio=4))
    trained = {name for name, parameter in student.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(name.split(".")[-2] in ("q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2") for name in trained)
    assert len(trained) == 2 * 6 * 2  # weight and bias of six maps in two layers


def test_without_a_stage_and_a_width_they_are_the_teachers():
    config = student_config(wide_teacher().config, None, None, SIDE, 3)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (3, 32, 4)
    assert config.out_features == ["stage3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": 4}, r"stage: expected 1 to the teacher's 3 layers, got 4"),
        ({"width": 12}, r"width: expected a multiple of the teacher's head size 8 up to its width 32, got 12"),
        ({"width": 40}, r"up to its width 32, got 40"),
        ({"mlp_ratio": 9}, r"mlp_ratio: expected 1 or more, up to the teacher's 128 units, got 9 x 16"),
        ({"mlp_ratio": 0}, r"mlp_ratio: expected 1 or more, up to the teacher's 128 units, got 0 x 16"),
    ],
)
def test_what_no_student_can_be_made_of(change, message):
    arguments = {"stage": 2, "width": 16, "image_size": SIDE, "mlp_ratio": 4, **change}
    with pytest.raises(ValueError, match=message):
        student_config(wide_teacher().config, **arguments)


def test_a_teacher_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"teacher: expected a DINOv2 backbone with a plain MLP"):
        student_config(wide_teacher(use_swiglu_ffn=True).config, 2, 16, SIDE, 4)
