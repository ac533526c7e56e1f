"""IdealConfig: every value validated, unknown names refused, round trips exact."""

import inspect
import json
from dataclasses import fields

import pytest
from transformers import AutoConfig, PreTrainedConfig

from modeling_ideal import IdealConfig, IdealModel
from modeling_ideal.threshold import ScorePrior

from .conftest import tiny_config

DEFAULTS = {
    "image_size": 448,
    "num_neighbors": 12,
    "num_components": 4,
    "erase_strength": 0.8,
    "num_deviation_vectors": 45,
    "num_attention_heads": 8,
    "attention_dropout": 0.1,
    "mlp_ratio": 4,
    "residual_anchor": "nearest",
    "alignment": "cosine",
    "loss_form": "single_map",
    "image_weight": 1.0,
    "discriminability_weight": 1.0,
    "orthogonality_weight": 0.8,
    "top_fraction": 0.01,
    "patch_smoothing": 0.0,
    "share_normals": False,
    "num_rotations": 1,
    "deviation_encoder": "attention",
    "score_prior": None,
}


def test_defaults_are_the_papers():
    config = IdealConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS
    backbone = config.backbone_config
    assert (backbone.model_type, backbone.hidden_size, backbone.patch_size) == ("dinov2", 384, 14)
    assert (backbone.num_hidden_layers, backbone.num_attention_heads) == (12, 6)
    assert (backbone.out_features, backbone.apply_layernorm) == (["stage12"], True)


def test_every_field_is_documented():
    ours = {field.name for field in fields(IdealConfig)} - {field.name for field in fields(PreTrainedConfig)}
    documented = inspect.getdoc(IdealConfig)
    assert ours == {*DEFAULTS, "backbone_config"}
    assert all(f"    {name}: " in documented for name in ours)


BAD_VALUES = [
    ({"num_neighbors": 1}, r"num_neighbors: expected an integer >= 2, got 1"),
    ({"num_neighbors": 2.5}, r"num_neighbors: expected an integer, got 2.5"),
    ({"num_neighbors": True}, r"num_neighbors: expected an integer, got True"),
    ({"num_components": 0}, r"num_components: expected an integer >= 1, got 0"),
    ({"num_components": 12}, r"expected 1 <= num_components < num_neighbors = 12, got 12"),
    ({"erase_strength": -0.1}, r"erase_strength: expected a number in \[0, 1\], got -0.1"),
    ({"erase_strength": 1.5}, r"erase_strength: expected a number in \[0, 1\], got 1.5"),
    ({"erase_strength": float("nan")}, r"erase_strength: expected a number in \[0, 1\], got nan"),
    ({"erase_strength": "0.8"}, r"erase_strength: expected a number in \[0, 1\], got '0.8'"),
    ({"num_deviation_vectors": 0}, r"num_deviation_vectors: expected an integer >= 1, got 0"),
    ({"num_attention_heads": 7}, r"num_attention_heads: expected a divisor of the backbone's width 384, got 7"),
    ({"attention_dropout": 1}, r"attention_dropout: expected a number in \[0, 1\), got 1"),
    ({"mlp_ratio": 0}, r"mlp_ratio: expected a number > 0, got 0"),
    ({"discriminability_weight": -1}, r"discriminability_weight: expected a number >= 0, got -1"),
    ({"orthogonality_weight": -0.1}, r"orthogonality_weight: expected a number >= 0, got -0.1"),
    ({"top_fraction": 0}, r"top_fraction: expected a number in \(0, 1\], got 0"),
    ({"image_size": 450}, r"image_size: expected a multiple of the backbone's patch size \(14, 14\), got 450"),
    ({"image_size": 0}, r"image_size: expected an integer >= 1, got 0"),
    ({"residual_anchor": "mean"}, r"residual_anchor: expected one of \('nearest', 'centroid'\), got 'mean'"),
    ({"alignment": "dot"}, r"alignment: expected one of \('cosine', 'euclidean', 'contrast'\), got 'dot'"),
    ({"patch_smoothing": -1}, r"patch_smoothing: expected a number in \[0, 100\], got -1"),
    ({"patch_smoothing": 1e9}, r"patch_smoothing: expected a number in \[0, 100\], got 1000000000"),
    ({"mlp_ratio": float("inf")}, "mlp_ratio: expected a number > 0, got inf"),
    ({"share_normals": 1}, r"share_normals: expected True or False, got 1"),
    ({"deviation_encoder": "mlp"}, r"deviation_encoder: expected one of \('attention', None\), got 'mlp'"),
    ({"score_prior": {"width": 1}}, r"score_prior: expected fields among \['spread', .* got {'width': 1}"),
    ({"score_prior": 0.2}, r"score_prior: expected fields among \['spread', .* got 0.2"),
    ({"score_prior": {"spread": -1}}, r"score_prior.spread: expected a number > 0, got -1"),
    ({"loss_form": "three"}, r"loss_form: expected one of \('single_map', 'two_channel'\), got 'three'"),
    ({"neighbors": 3}, r"expected fields among \['alignment', .* got unknown \['neighbors'\]"),
    ({"backbone": "facebook/dinov2-small"}, r"got unknown \['backbone'\]"),
    ({"backbone_config": "dinov2"}, "backbone_config: expected a configuration or its dictionary, got 'dinov2'"),
    ({"backbone_config": {"hidden_size": 8}}, r"backbone_config: expected a 'model_type' among its keys"),
    ({"backbone_config": {"model_type": "resnet"}}, r"expected a vision transformer with a hidden_size, got 'resnet'"),
    (
        {"backbone_config": {"model_type": "swin"}},
        r"expected a vision transformer with one grid of patches, .* got 'swin', whose stages differ in size",
    ),
    (
        {"backbone_config": {"model_type": "dinov2", "out_features": []}},
        r"out_features: expected at least one stage, got \[\]",
    ),
    (
        {"backbone_config": {"model_type": "vit", "out_features": ["stage9"]}},
        r"'vit' has no stages to choose from, got \['stage9'\]",
    ),
]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES, ids=[str(values) for values, _ in BAD_VALUES])
def test_bad_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        IdealConfig(**values)


def test_a_value_changed_afterwards_is_checked_by_the_model():
    config = tiny_config()
    config.num_neighbors = 1
    with pytest.raises(ValueError, match="num_neighbors: expected an integer >= 2, got 1"):
        IdealModel(config)


def test_round_trip_through_a_dictionary_and_a_folder(tmp_path):
    config = tiny_config(erase_strength=1, residual_anchor="centroid", mlp_ratio=2.5)
    assert IdealConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is IdealConfig
    assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()
    loaded.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == json.loads(
        (tmp_path / "config.json").read_text()
    )


def test_the_callers_backbone_config_is_left_alone():
    backbone = AutoConfig.for_model("dinov2", hidden_size=384, reshape_hidden_states=False, patch_size=14)
    config = IdealConfig(backbone_config=backbone)
    assert backbone.reshape_hidden_states is False
    assert config.backbone_config.reshape_hidden_states is True


def test_a_file_may_hold_what_this_version_does_not_know(tmp_path):
    config = tiny_config()
    config.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    quantization = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    newer = {"quantization_config": quantization, "written_by_a_newer_version": 7}
    (tmp_path / "config.json").write_text(json.dumps({**values, **newer}))
    for load in (IdealConfig.from_pretrained, AutoConfig.from_pretrained):
        loaded = load(tmp_path)
        assert loaded.quantization_config == quantization
        assert loaded.top_fraction == config.top_fraction
    loaded.save_pretrained(tmp_path)
    assert newer.items() <= json.loads((tmp_path / "config.json").read_text()).items()


def test_what_every_configuration_of_transformers_takes_is_taken():
    config = tiny_config(attn_implementation="eager", name_or_path="here", dtype="float32")
    assert config._attn_implementation == "eager"
    with pytest.raises(ValueError, match=r"got unknown \['top_fracton'\]"):
        tiny_config(top_fracton=0.1)


def test_a_level_is_known_for_one_form_of_the_score_alone():
    prior = {"spread": 0.3, "level": -2.0}
    free = {"alignment": "contrast", "deviation_encoder": None, "score_prior": prior}
    assert IdealConfig(**free).prior == ScorePrior(**prior)
    for change in ({"alignment": "cosine"}, {"deviation_encoder": "attention"}):
        assert IdealConfig(**{**free, **change}).prior == ScorePrior(spread=0.3)
