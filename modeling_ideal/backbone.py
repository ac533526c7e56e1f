"""The frozen visual encoder: any ViT of transformers, as a grid of patch features (section 3)."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoBackbone, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .aligned_memory import align_weights


def build_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """Build a backbone with random weights.

    Backbones of transformers return feature maps of named stages. For a plain ViT, which has no backbone class, the
    patch tokens after the final layer norm are used.
    """
    config = copy.deepcopy(config)  # transformers shares the config object with the module it builds
    if hasattr(config, "stage_names"):
        return AutoBackbone.from_config(config)
    return AutoModel.from_config(config, add_pooling_layer=False)


def load_backbone(name_or_folder: str, config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Load a pre-trained backbone from the Hub or a folder; ValueError if any weight is missing."""
    with torch.device("meta"):
        backbone_class = type(build_backbone(config))
    options: dict[str, Any] = {} if hasattr(config, "stage_names") else {"add_pooling_layer": False}
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # the weights of layers after the last stage are unused on purpose
    try:
        backbone, info = backbone_class.from_pretrained(
            name_or_folder, config=copy.deepcopy(config), dtype=dtype, output_loading_info=True, **options
        )
    finally:
        logging.set_verbosity(verbosity)
    if info["missing_keys"]:
        raise ValueError(
            f"expected all weights of {backbone_class.__name__} in {name_or_folder!r}, "
            f"got none for {sorted(info['missing_keys'])}"
        )
    align_weights(backbone)
    return backbone


def load_backbone_config(name_or_folder: str, overrides: dict[str, Any]) -> PreTrainedConfig:
    """Load the configuration of a pre-trained backbone; without `out_features` among the overrides, its last stage."""
    config = AutoConfig.from_pretrained(name_or_folder)
    unknown = sorted(name for name in overrides if not hasattr(config, name))
    if unknown:
        raise ValueError(
            f"from_backbone expected fields of IdealConfig or of {type(config).__name__}, got unknown {unknown}"
        )
    if hasattr(config, "stage_names"):
        config.out_features = [config.stage_names[-1]]
    for name, value in overrides.items():
        setattr(config, name, value)
    return config


def freeze(backbone: nn.Module) -> None:
    """Switch off the gradients and the dropout of the backbone."""
    backbone.requires_grad_(False)
    backbone.eval()


@torch.no_grad()
def patch_features(backbone: nn.Module, pixels: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Extract patch features (B, h, w, C), float32, from images (B, 3, H, W), without class and register tokens."""
    height, width = pixels.shape[-2] // patch_size[0], pixels.shape[-1] // patch_size[1]
    if hasattr(backbone.config, "stage_names"):
        stages = [stage.permute(0, 2, 3, 1) for stage in backbone(pixels).feature_maps]  # (B, h, w, C) each
        features = stages[0] if len(stages) == 1 else mean_direction(stages)
    else:
        tokens = backbone(pixels, interpolate_pos_encoding=True).last_hidden_state  # patch tokens come last
        features = tokens[:, -height * width :].unflatten(1, (height, width))
    return features.float().contiguous()


def mean_direction(stages: Sequence[Tensor]) -> Tensor:
    """Average the features (..., C) of several stages, each at length 1, since those of deep stages are longer.

    Differs from the paper, which uses one stage; held-out source categories show the gain (docs/choices.md).
    """
    return torch.stack([F.normalize(stage.float(), dim=-1) for stage in stages]).mean(0)
