"""Backbones that were trained for something else: CLIP and SigLIP with text, ViT-MAE with masked patches."""

import pytest
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    SiglipConfig,
    SiglipModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    SwinConfig,
    SwinModel,
    ViTMAEConfig,
    ViTMAEForPreTraining,
    ViTMAEModel,
)

from modeling_ideal import IdealConfig, IdealModel
from modeling_ideal.backbone import patch_features
from modeling_ideal.image_processing_ideal import IMAGENET_MEAN, IdealImageProcessor
from modeling_ideal.training.head.starting_point import processor_on_backbone

LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**LAYERS, "patch_size": 8, "image_size": 32}
TEXT = {**LAYERS, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1}
DECODER = {f"decoder_{name}": value for name, value in LAYERS.items()}
BOTH = {"vision_config": VISION, "text_config": TEXT}
MODELS = {
    "CLIP vision": lambda: CLIPVisionModel(CLIPVisionConfig(**VISION)),
    "CLIP": lambda: CLIPModel(CLIPConfig(**BOTH)),
    "SigLIP vision": lambda: SiglipVisionModel(SiglipVisionConfig(**VISION)),
    "SigLIP": lambda: SiglipModel(SiglipConfig(**BOTH)),
    "ViT-MAE": lambda: ViTMAEModel(ViTMAEConfig(**VISION, **DECODER)),
    "ViT-MAE with decoder": lambda: ViTMAEForPreTraining(ViTMAEConfig(**VISION, **DECODER)),
}


def saved(name, folder):
    torch.manual_seed(0)
    whole = MODELS[name]().eval()
    whole.save_pretrained(folder)
    return whole


def patch_tokens(whole, images):
    """The patch tokens (B, h * w, C) of the model itself, without ours."""
    tower = getattr(whole, "vision_model", getattr(whole, "vit", whole))
    options = {"interpolate_pos_encoding": True}
    count = images.shape[-2] * images.shape[-1] // 64
    if isinstance(tower, ViTMAEModel):
        tower.config.mask_ratio = tower.embeddings.config.mask_ratio = 0.0
        options["noise"] = torch.linspace(0, 1, count).repeat(len(images), 1)
    with torch.no_grad():
        return tower(images, **options).last_hidden_state[:, -count:]


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_becomes_a_backbone(name, tmp_path):
    whole = saved(name, tmp_path / "whole")
    model = IdealModel.from_backbone(tmp_path / "whole", image_size=32, num_attention_heads=4)
    for images in (torch.randn(2, 3, 32, 32), torch.randn(2, 3, 24, 40)):  # of its own size, and of another
        features = model.extract_features(images)
        torch.testing.assert_close(features.flatten(1, 2), patch_tokens(whole, images), atol=1e-5, rtol=0)
        assert torch.equal(model.extract_features(images), features)
        torch.testing.assert_close(model.extract_features(images[1:]), features[1:], atol=1e-5, rtol=0)
    model.save_pretrained(tmp_path / "saved")
    loaded, info = IdealModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()), info
    assert torch.equal(loaded.extract_features(images), features)
    assert loaded.fingerprint == model.fingerprint


def test_parts_that_only_their_training_needs_are_left_out(tmp_path):
    saved("SigLIP", tmp_path)
    model = IdealModel.from_backbone(tmp_path, image_size=32, num_attention_heads=4)
    assert not [name for name, _ in model.backbone.named_parameters() if name.startswith("head.")]


def test_patches_of_a_masked_autoencoder_stay_in_their_place():
    torch.manual_seed(0)
    config = IdealConfig(backbone_config=ViTMAEConfig(**VISION, **DECODER), image_size=32, num_attention_heads=4)
    model = IdealModel(config)
    images = torch.randn(1, 3, 24, 40)
    features = model.extract_features(images)
    for row, column in ((0, 0), (1, 3), (2, 4)):
        changed = images.clone()
        changed[..., 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 5.0
        moved = (model.extract_features(changed) - features).norm(dim=-1)[0]
        assert moved.argmax() == 5 * row + column


def test_the_normalisation_is_that_of_the_backbone(tmp_path):
    saved("SigLIP vision", tmp_path)
    model = IdealModel.from_backbone(tmp_path, image_size=32, num_attention_heads=4)
    assert list(processor_on_backbone(str(tmp_path), model).image_mean) == list(IMAGENET_MEAN)
    IdealImageProcessor(size=8, patch_size=8, image_mean=[0.5] * 3, image_std=[0.25] * 3).save_pretrained(tmp_path)
    processor = processor_on_backbone(str(tmp_path), model)
    assert (list(processor.image_mean), list(processor.image_std)) == ([0.5] * 3, [0.25] * 3)
    assert processor(query=torch.zeros(3, 8, 8))["query"].shape == (1, 3, 32, 32)


def test_a_hierarchy_of_grids_is_refused_when_the_configuration_is_made(tmp_path):
    swin = SwinConfig(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4)
    message = r"expected a vision transformer with one grid of patches, .* got 'swin', whose stages differ in size"
    with pytest.raises(ValueError, match=message):
        IdealConfig(backbone_config=swin)
    SwinModel(swin).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        IdealModel.from_backbone(tmp_path)


def test_a_backbone_of_one_size_only_is_refused():
    config = {"model_type": "siglip2_vision_model", **LAYERS, "patch_size": 8}
    with pytest.raises(ValueError, match=r"takes pictures of any size .* got 'siglip2_vision_model'"):
        IdealModel(IdealConfig(backbone_config=config, image_size=32, num_attention_heads=4))


def test_another_grid_than_the_patch_size_says_is_refused():
    torch.manual_seed(0)
    model = IdealModel(IdealConfig(backbone_config=CLIPVisionConfig(**VISION), image_size=32, num_attention_heads=4))
    message = r"expected a backbone with 8 x 8 patches for pictures of \(32, 32\) pixels, got features of 1 x 17"
    with pytest.raises(ValueError, match=message):
        patch_features(model.backbone, torch.randn(1, 3, 32, 32), (4, 4))
