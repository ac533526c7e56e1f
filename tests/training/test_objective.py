"""The loss of a batch of episodes: that of the model itself, episode by episode."""

import dataclasses

import pytest
import torch

from modeling_ideal.training.head.objective import EpisodeLoss, EpisodeTensors

from ..conftest import random_images, random_masks, threads, tiny_model


def episode(model, seed, num_normal=1, num_abnormal=1):
    """An episode of random pictures: as tensors, and as the images they come from."""
    images = {
        "query": random_images(1, seed=seed),
        "normal_refs": random_images(num_normal, seed=seed + 100),
        "abnormal_refs": random_images(num_abnormal, seed=seed + 200),
        "masks": random_masks(num_abnormal).roll(seed, -1),
        "query_masks": random_masks(1) * (seed % 2),
        "labels": torch.tensor([seed % 2]),
    }
    tensors = EpisodeTensors(
        query=model.extract_features(images["query"])[0],
        normal=model.extract_features(images["normal_refs"]),
        abnormal=model.extract_features(images["abnormal_refs"]),
        marked=torch.nn.functional.max_pool2d(images["masks"], 4) > 0,
        query_mask=images["query_masks"][0] > 0,
        label=seed % 2,
        seed=seed,
    )
    return tensors, images


@pytest.mark.parametrize("loss_form", ["single_map", "two_channel"])
def test_it_is_the_mean_of_the_losses_that_the_model_has_for_the_images(loss_form):
    model = tiny_model(loss_form=loss_form)
    setups = [(1, 1), (3, 2), (2, 1)]
    pairs = [episode(model, seed, *setup) for seed, setup in enumerate(setups)]
    with threads(2):  # which share the episodes
        losses = EpisodeLoss(model)([tensors for tensors, _ in pairs])
    alone = [model(**images) for _, images in pairs]
    torch.testing.assert_close(losses["loss"], torch.stack([out.loss for out in alone]).mean())
    for name in ("focal", "dice", "image", "discriminability", "orthogonality"):
        torch.testing.assert_close(losses[name], torch.stack([out.losses[name] for out in alone]).mean())


def test_dropout_belongs_to_the_episode():
    model = tiny_model(attention_dropout=0.5).train()
    objective = EpisodeLoss(model)
    episodes = [episode(model, seed)[0] for seed in range(3)]
    together = objective(episodes)["loss"]
    torch.manual_seed(99)  # whatever came before
    alone = [objective([each])["loss"] for each in episodes]
    torch.testing.assert_close(together, torch.stack(alone).mean())
    other = dataclasses.replace(episodes[0], seed=7)
    assert not torch.isclose(objective([other])["loss"], alone[0])


def test_gradients_reach_the_head_and_nothing_else():
    model = tiny_model().train()
    tensors, _ = episode(model, 1)
    features = [tensors.query, tensors.normal, tensors.abnormal]
    assert not any(each.requires_grad for each in features)
    EpisodeLoss(model)([tensors])["loss"].backward()
    assert all(parameter.grad is not None for parameter in model.deviation_encoder.parameters())
    assert all(parameter.grad is None for parameter in model.backbone.parameters())


def test_references_without_masks_or_normals():
    model = tiny_model()
    tensors, images = episode(model, 1, num_abnormal=2)
    unmarked = EpisodeLoss(model)([dataclasses.replace(tensors, marked=None)])["loss"]
    torch.testing.assert_close(unmarked, model(**{**images, "masks": None}).loss)
    abnormal_only = EpisodeLoss(model)([dataclasses.replace(tensors, normal=None)])["loss"]
    torch.testing.assert_close(abnormal_only, model(**{**images, "normal_refs": None}).loss)
