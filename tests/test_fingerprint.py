"""The fingerprint of a model: it changes with whatever changes scores, and with nothing else."""

import copy
from dataclasses import fields

import pytest
import torch
from torch import nn
from transformers import Dinov2Config, PreTrainedConfig

from modeling_ideal import IdealConfig
from modeling_ideal.fingerprint import (
    NOT_SCORING,
    backbone_settings,
    model_fingerprint,
    scoring_settings,
    weight_role,
    weights,
)

from .conftest import random_images, random_masks, tiny_config, tiny_model
from .test_backbone import BACKBONES, build

SCORING = {
    "num_neighbors": 10,
    "num_components": 3,
    "erase_strength": 0.5,
    "num_deviation_vectors": 6,
    "num_attention_heads": 2,
    "mlp_ratio": 2,
    "residual_anchor": "centroid",
    "alignment": "euclidean",
    "patch_smoothing": 1.0,
    "share_normals": True,
    "num_rotations": 4,
    "deviation_encoder": None,
}
ELSEWHERE = {
    "image_size": 64,
    "attention_dropout": 0.0,
    "loss_form": "two_channel",
    "image_weight": 0.0,
    "discriminability_weight": 0.0,
    "orthogonality_weight": 0.0,
    "score_prior": {"spread": 0.3},
    "top_fraction": 0.5,
}


@pytest.mark.parametrize("name", SCORING)
def test_a_setting_that_changes_scores_counts(model, name):
    assert tiny_model(**{name: SCORING[name]}).fingerprint != model.fingerprint
    if name in ("erase_strength", "alignment", "patch_smoothing"):  # no weights depend on it
        before = model.fingerprint
        setattr(model.config, name, SCORING[name])
        assert model.fingerprint != before


def test_other_settings_do_not_count(model):
    assert tiny_model(**ELSEWHERE).fingerprint == model.fingerprint


def test_every_setting_is_known_here():
    """A new field changes scores, unless `NOT_SCORING` says why not: add it here too."""
    ours = {field.name for field in fields(IdealConfig)} - {field.name for field in fields(PreTrainedConfig)}
    assert set(ELSEWHERE) | {"backbone_config"} == set(NOT_SCORING)
    assert ours - set(NOT_SCORING) >= set(SCORING)


def test_a_whole_number_is_the_same_setting_as_a_float(model):
    assert tiny_model(mlp_ratio=4.0).fingerprint == model.fingerprint
    assert tiny_model(erase_strength=1).fingerprint == tiny_model(erase_strength=1.0).fingerprint


class NewerConfig(Dinov2Config):
    """DINOv2 as a newer release might configure it."""

    tokens_to_merge: int = 0


class OlderConfig(Dinov2Config):
    """DINOv2 as an older release might configure it."""

    def to_dict(self):
        missing = ("use_swiglu_ffn", "use_mask_token", "output_attentions", "chunk_size_feed_forward", "problem_type")
        return {name: value for name, value in super().to_dict().items() if name not in missing}


def rebuilt(kind, config, **changes):
    """The same configuration in another class."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "patch_size", "image_size", "out_features")
    return kind(**{name: getattr(config, name) for name in names}, **changes)


def test_another_release_of_transformers_is_the_same_backbone(model):
    config = model.config.backbone_config
    assert "tokens_to_merge" in rebuilt(NewerConfig, config).to_dict()
    for kind in (NewerConfig, OlderConfig):
        assert backbone_settings(rebuilt(kind, config)) == backbone_settings(config)
    merged = rebuilt(NewerConfig, config, tokens_to_merge=2)
    assert backbone_settings(merged) == {**backbone_settings(config), "tokens_to_merge": 2.0}


@pytest.mark.parametrize(
    "changes",
    [{"layer_norm_eps": 1e-5}, {"hidden_act": "relu"}, {"apply_layernorm": False}, {"out_features": ["stage1"]}],
    ids=str,
)
def test_what_changes_features_counts(model, changes):
    config = copy.deepcopy(model.config.backbone_config)
    for name, value in changes.items():
        setattr(config, name, value)
    assert backbone_settings(config) != backbone_settings(model.config.backbone_config)
    before = model_fingerprint({}, model.config.backbone_config, model.backbone)
    assert model_fingerprint({}, config, model.backbone) != before


def test_where_the_model_came_from_does_not_count(model):
    before = model.fingerprint
    model.config.backbone_config._name_or_path = "elsewhere/dinov2"
    model.config.backbone_config.architectures = ["Dinov2Model"]
    model.config.backbone_config.drop_path_rate = 0.1
    model.config.backbone_config.hidden_dropout_prob = 0.1
    assert model.fingerprint == before


def test_a_compiled_backbone_is_the_same(model):
    before = model.fingerprint
    model.backbone = torch.compile(model.backbone)
    assert model.fingerprint == before
    assert any("_orig_mod" in name for name, _ in weights(model.backbone))


class Layer(nn.Module):
    """A layer with weights of these names."""

    def __init__(self, **values):
        super().__init__()
        for name, value in values.items():
            setattr(self, name, nn.Parameter(value))


def test_neither_a_new_name_nor_the_order_of_weights_counts_but_their_role_and_layer_do():
    config = tiny_config().backbone_config
    one, two, three, four = (torch.arange(4.0) + start for start in (0, 10, 20, 30))
    models = [
        nn.ModuleList([Layer(query=one, value=two), Layer(query=three, value=four)]),
        nn.ModuleList([Layer(v_proj=two, q_proj=one), Layer(v_proj=four, q_proj=three)]),
        nn.ModuleList([Layer(query=two, value=one), Layer(query=three, value=four)]),
        nn.ModuleList([Layer(query=three, value=four), Layer(query=one, value=two)]),
    ]
    first, renamed, *swapped = (model_fingerprint({}, config, each) for each in models)
    assert first == renamed
    assert len({first, *swapped}) == 3


def test_weights_of_one_shape_that_are_swapped_in_a_layer_make_another_model(model):
    """They change scores: references that were encoded before are refused."""
    references = model.encode_references(random_images(2), random_images(1, seed=1), random_masks(1))
    attention = model.backbone.encoder.layer[0].attention
    with torch.no_grad():
        query = attention.q_proj.weight.clone()
        attention.q_proj.weight.copy_(attention.v_proj.weight)
        attention.v_proj.weight.copy_(query)
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        model(random_images(1, seed=2), references=references)


@pytest.mark.parametrize("name", BACKBONES)
def test_no_two_weights_of_one_shape_have_one_role(name):
    """Otherwise a swap of the two would not be noticed."""
    model, _ = build(name)
    found = [(weight_role(key), tuple(value.shape)) for key, value in weights(model.backbone)]
    same = {entry for entry in found if found.count(entry) > 1}
    assert same <= {("layernorm.weight", (16,)), ("layernorm.bias", (16,))}  # pixio has two, one of them unused


def test_roles_of_earlier_releases_are_those_of_today():
    """Names of DINOv2 in transformers 5.10 and 5.22."""
    for old, new in (
        ("encoder.layer.3.attention.attention.query.weight", "encoder.layer.3.attention.q_proj.weight"),
        ("encoder.layer.3.attention.output.dense.bias", "encoder.layer.3.attention.o_proj.bias"),
        ("encoder.layer.3.norm1.bias", "layers.3.norm1.bias"),
    ):
        assert weight_role(old) == weight_role(new) == weight_role(f"_orig_mod.{new}")


def test_a_buffer_that_was_learned_counts():
    config, module = tiny_config().backbone_config, nn.BatchNorm1d(4)
    before = model_fingerprint({}, config, module)
    module.running_mean += 1
    assert model_fingerprint({}, config, module) != before


def fused_step(model, module):
    """One step of fused AdamW, which leaves the versions of the weights as they were."""
    module.requires_grad_(True)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


@pytest.mark.parametrize("part", ["deviation_encoder", "backbone"])
def test_references_encoded_before_a_fused_step_are_refused(model, part):
    references = model.encode_references(random_images(2), random_images(1, seed=1), random_masks(1))
    query = random_images(1, seed=2)
    model(query, references=references)
    fused_step(model, getattr(model, part))
    model.backbone.requires_grad_(False)
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        model(query, references=references)


def test_a_change_that_goes_around_autograd_counts(model):
    seen = {model.fingerprint}
    for parameter in (model.backbone.encoder.layer[0].mlp.fc1.weight, model.deviation_encoder.vectors.weight):
        parameter.data.view(-1)[3] += 1
        seen.add(model.fingerprint)
    trained = model.deviation_encoder.vectors.weight
    trained.data.copy_(trained.data.flip(0))  # the same values elsewhere
    seen.add(model.fingerprint)
    assert len(seen) == 4


def test_settings_at_their_defaults_are_left_out():
    assert scoring_settings(IdealConfig()) == {}
    assert scoring_settings(IdealConfig(alignment="contrast")) == {"alignment": "contrast"}
