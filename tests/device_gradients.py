"""Gradients on a pretended device; `tests/test_devices.py` runs these tests in a process of their own."""

from types import SimpleNamespace

import torch

from modeling_ideal.training.distillation.student import fit_to_teacher, new_student, student_config
from modeling_ideal.training.head.batches import read_episode
from modeling_ideal.training.head.objective import EpisodeLoss

from .conftest import tiny_model
from .test_devices import SIDE, Features, device, masks, pictures

__all__ = ["device"]


def test_gradients_of_the_model(device):
    model = tiny_model().to(device)
    targets = {"query_masks": masks(2), "labels": torch.tensor([0, 1])}
    model(pictures(2), pictures(3, 1), pictures(2, 2), masks(2), **targets).loss.backward()
    assert all(parameter.grad.device == device for parameter in model.parameters() if parameter.requires_grad)


def test_gradients_of_an_episode(device):
    model = tiny_model().to(device).train()
    episode = SimpleNamespace(query=3, normal=[0, 1], abnormal=[2])
    EpisodeLoss(model)([read_episode(Features(model), episode, 0, device)])["loss"].backward()
    assert model.deviation_encoder.vectors.weight.grad.device == device


def test_a_student_is_fitted(device):
    teacher = tiny_model().backbone.to(device)
    student = new_student(student_config(teacher.config, 2, 8, SIDE, 4)).to(device)
    assert fit_to_teacher(student, teacher, pictures(2).to(device)).device == device
    assert all(parameter.device == device for parameter in student.parameters())
