"""The configuration of a backbone: DINOv2 ViT-S/14 by default, or any plain vision transformer."""

import copy
from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

UNUSED_PARTS: dict[str, dict[str, Any]] = {  # of a backbone: what it needs in its own training alone
    "vit_mae": {"mask_ratio": 0.0},
    "siglip_vision_model": {"vision_use_head": False},
}


def default_backbone_config() -> PreTrainedConfig:
    """DINOv2 ViT-S/14 as in the paper: patch tokens of the last stage after the final layer norm."""
    return AutoConfig.for_model(
        "dinov2",
        hidden_size=384,
        num_attention_heads=6,
        image_size=518,
        patch_size=14,
        out_features=["stage12"],
    )


def build_backbone_config(backbone_config: Mapping | PreTrainedConfig | None) -> PreTrainedConfig:
    """Make a config object of our own, never the caller's, with stages returned as feature maps."""
    if backbone_config is None:
        return default_backbone_config()
    if isinstance(backbone_config, Mapping):
        values = dict(backbone_config)
        if "model_type" not in values:
            raise ValueError(f"backbone_config: expected a 'model_type' among its keys, got {sorted(values)}")
        config = AutoConfig.for_model(values.pop("model_type"), **values)
    elif isinstance(backbone_config, PreTrainedConfig):
        config = copy.deepcopy(backbone_config)
    else:
        raise ValueError(f"backbone_config: expected a configuration or its dictionary, got {backbone_config!r:.100}")
    _check_is_plain(config)
    for name, value in UNUSED_PARTS.get(config.model_type, {}).items():
        setattr(config, name, value)
    stages = getattr(config, "out_features", None)
    if stages is not None and not hasattr(config, "stage_names"):
        raise ValueError(f"backbone_config: {config.model_type!r} has no stages to choose from, got {stages}")
    if hasattr(config, "reshape_hidden_states"):
        config.reshape_hidden_states = True  # otherwise stages are token sequences with class and register tokens
    if stages is not None:
        _end_at_last_stage(config, stages)
    return config


def _check_is_plain(config: PreTrainedConfig) -> None:
    """Refuse all but vision transformers whose features are one grid of patches."""
    for name in ("hidden_size", "patch_size"):
        if not hasattr(config, name):
            raise ValueError(
                f"backbone_config: expected a vision transformer with a {name}, got {config.model_type!r}"
            )
    if hasattr(config, "depths"):
        raise ValueError(
            "backbone_config: expected a vision transformer with one grid of patches, of its patch_size, in all "
            f"stages, got {config.model_type!r}, whose stages differ in size"
        )


def _end_at_last_stage(config: Any, stages: list[str]) -> None:
    """Drop the layers after the last stage in use, which cost time and memory and change nothing."""
    if not stages:
        raise ValueError(f"backbone_config.out_features: expected at least one stage, got {stages}")
    if getattr(config, "num_hidden_layers", None) != len(config.stage_names) - 1:
        if len(stages) > 1:
            raise ValueError(
                f"backbone_config.out_features: expected one stage of {config.model_type!r}, whose stages differ in "
                f"size, got {stages}"
            )
        return
    config.num_hidden_layers = max(1, config.stage_names.index(stages[-1]))
    config.stage_names = config.stage_names[: config.num_hidden_layers + 1]
