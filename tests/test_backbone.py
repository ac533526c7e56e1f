"""Patch features of every kind of ViT backbone: the right tokens, any grid, any patch size."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoBackbone, AutoConfig

from modeling_ideal import IdealConfig, IdealModel
from modeling_ideal.training.head.starting_point import model_on_backbone

COMMON = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
BACKBONES = {
    "dinov2": {"patch_size": 14, "image_size": 56, "out_features": ["stage2"]},
    "dinov2 giant": {"model_type": "dinov2", "patch_size": 14, "image_size": 56, "use_swiglu_ffn": True},
    "dinov2_with_registers": {"patch_size": 14, "image_size": 56, "num_register_tokens": 4},
    "dinov3_vit": {"patch_size": 16, "image_size": 64, "num_register_tokens": 4},
    "vit": {"patch_size": 8, "image_size": 32},
    "deit": {"patch_size": 8, "image_size": 32},
    "pixio": {"patch_size": 16, "image_size": 64},
    "clip_vision_model": {"patch_size": 8, "image_size": 32},
    "siglip_vision_model": {"patch_size": 8, "image_size": 32},
    "vit_mae": {"patch_size": 8, "image_size": 32},
}


def build(name):
    values = {"model_type": name, **COMMON, **BACKBONES[name]}
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    torch.manual_seed(0)
    patch = config.patch_size
    return IdealModel(IdealConfig(backbone_config=config, image_size=4 * patch, num_attention_heads=4)), patch


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"siglip_vision_model", "vit_mae"}))  # see test_vision_towers
def test_features_are_the_patch_tokens(name):
    model, patch = build(name)
    images = torch.randn(2, 3, 3 * patch, 5 * patch)
    features = model.extract_features(images)
    assert features.shape == (2, 3, 5, 16)
    assert features.dtype == torch.float32
    assert not features.requires_grad
    options = {} if hasattr(model.backbone.config, "stage_names") else {"interpolate_pos_encoding": True}
    with torch.no_grad():
        hidden = model.backbone(images, output_hidden_states=True, **options).hidden_states
    stage = 2 if name == "dinov2" else 3
    norm = getattr(model.backbone, "layernorm", None) or getattr(model.backbone, "norm", None)
    tokens = hidden[stage][:, -15:]  # class and register tokens come first
    expected = norm(tokens) if norm is not None else tokens
    torch.testing.assert_close(features.flatten(1, 2), expected.detach(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_patch_feature_belongs_to_its_place(name):
    """A change in one corner moves the feature of that corner most."""
    model, patch = build(name)
    images = torch.randn(1, 3, 3 * patch, 5 * patch)
    changed = images.clone()
    changed[..., 2 * patch :, 4 * patch :] = 5.0
    moved = (model.extract_features(changed) - model.extract_features(images)).norm(dim=-1)[0]
    assert moved.argmax() == 2 * 5 + 4


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_scores_and_survives_saving(name, tmp_path):
    model, patch = build(name)
    query, normal, abnormal = torch.randn(3, 1, 3, 3 * patch, 5 * patch)
    masks = torch.zeros(1, 3 * patch, 5 * patch)
    masks[:, :patch, :patch] = 1
    out = model(query, normal, abnormal, masks)
    assert out.patch_scores.shape == (1, 3, 5)
    model.save_pretrained(tmp_path)
    loaded, info = IdealModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert torch.equal(loaded(query, normal, abnormal, masks).patch_scores, out.patch_scores)


@pytest.mark.parametrize("name", [*BACKBONES, "beit"])
def test_every_backbone_takes_the_processors_float32_whatever_its_weights(name):
    values = {"patch_size": 8, "image_size": 32, "out_features": ["stage3"]} if name == "beit" else BACKBONES[name]
    config = AutoConfig.for_model(**{"model_type": name, **COMMON, **values})
    torch.manual_seed(0)
    side = 4 * config.patch_size
    model = IdealModel(IdealConfig(backbone_config=config, image_size=side, num_attention_heads=4))
    images = torch.randn(1, 3, side, side)
    exact = model.extract_features(images)
    assert torch.equal(model.extract_features(images.double()), exact)
    half = model.bfloat16().extract_features(images)
    assert half.dtype == torch.float32
    assert F.cosine_similarity(half, exact, dim=-1).min() > 0.99


@pytest.mark.parametrize("name", ["dinov2", "dinov2_with_registers", "dinov3_vit", "pixio"])
def test_layers_behind_the_stage_are_left_out_and_change_nothing(name, tmp_path):
    values = {**COMMON, **BACKBONES[name], "out_features": ["stage2"]}
    torch.manual_seed(0)
    whole = AutoBackbone.from_config(AutoConfig.for_model(name, **values)).eval()
    whole.save_pretrained(tmp_path)
    patch = values["patch_size"]
    model = IdealModel.from_backbone(
        tmp_path, backbone_config={"out_features": ["stage2"]}, image_size=4 * patch, num_attention_heads=4
    )
    images = torch.randn(2, 3, 3 * patch, 5 * patch)
    with torch.no_grad():
        expected = whole(images).feature_maps[0]  # (B, C, h, w)
    # Not to the bit: outside of the model another library may compute the products.
    torch.testing.assert_close(model.extract_features(images), expected.permute(0, 2, 3, 1), atol=1e-5, rtol=1e-5)
    assert model.config.backbone_config.num_hidden_layers == 2
    assert sum(weight.numel() for weight in model.backbone.parameters()) < sum(
        weight.numel() for weight in whole.parameters()
    )


def test_several_stages_are_averaged_at_length_1(tmp_path):
    torch.manual_seed(0)
    whole = AutoBackbone.from_config(AutoConfig.for_model("dinov2", **COMMON, patch_size=14, image_size=56)).eval()
    whole.save_pretrained(tmp_path)
    model = model_on_backbone(str(tmp_path), "stage1+stage2", no_norm=True, image_size=56, num_attention_heads=4)
    images = torch.randn(2, 3, 42, 70)
    with torch.no_grad():
        hidden = whole(images, output_hidden_states=True).hidden_states
    expected = np.zeros((2, 15, 16))
    for stage in (1, 2):
        for image in range(2):
            for patch in range(15):
                token = hidden[stage][image, 1 + patch].double().numpy()
                expected[image, patch] += token / np.sqrt((token**2).sum()) / 2
    features = model.extract_features(images)
    np.testing.assert_allclose(features.flatten(1, 2), expected, atol=1e-6)
    assert model.config.backbone_config.num_hidden_layers == 2
    model.save_pretrained(tmp_path / "saved")
    loaded = IdealModel.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.extract_features(images), features)


def test_a_checkpoint_that_still_has_the_layers_behind_the_stage_loads(tmp_path):
    model, _ = build("dinov2")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    unread = {name.replace("layer.1.", "layer.2."): weights[name] + 1 for name in weights if "layer.1." in name}
    assert unread
    save_file({**weights, **unread}, file, metadata={"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config["backbone_config"] |= {"num_hidden_layers": 3, "stage_names": ["stem", "stage1", "stage2", "stage3"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded, info = IdealModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    images = torch.randn(1, 3, 42, 70)
    assert torch.equal(loaded.extract_features(images), model.extract_features(images))


def test_a_plain_vit_loads_its_pretrained_weights(tmp_path):
    model, _ = build("vit")
    model.backbone.save_pretrained(tmp_path)
    loaded = IdealModel.from_backbone(tmp_path, image_size=32, num_attention_heads=4)
    images = torch.randn(1, 3, 24, 40)
    assert torch.equal(loaded.extract_features(images), model.extract_features(images))


def test_the_config_is_not_shared_with_the_backbone():
    model, _ = build("dinov2")
    assert model.backbone.config is not model.config.backbone_config
