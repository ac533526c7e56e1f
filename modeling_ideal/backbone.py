"""The frozen visual encoder: any ViT of transformers, as a grid of patch features (section 3)."""

import copy
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoBackbone, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .aligned_memory import align_weights
from .input_checks import weight_type
from .matrix_products import fast_layers


def build_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """Build a backbone with random weights.

    Backbones of transformers return feature maps of named stages. For a plain ViT, which has no backbone class, the
    patch tokens of its last hidden state are used.
    """
    config = copy.deepcopy(config)  # transformers shares the config object with the module it builds
    if hasattr(config, "stage_names"):
        return AutoBackbone.from_config(config)
    backbone = AutoModel.from_config(config, **_options(config))
    if "interpolate_pos_encoding" not in signature(backbone.forward).parameters:
        raise ValueError(
            f"backbone_config: expected a vision transformer that takes pictures of any size "
            f"(interpolate_pos_encoding), got {config.model_type!r}"
        )
    return backbone


def load_backbone(name_or_folder: str, config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Load a pre-trained backbone from the Hub or a folder; ValueError if any weight is missing."""
    with torch.device("meta"):
        backbone_class = type(build_backbone(config))
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # the weights of layers after the last stage are unused on purpose
    try:
        backbone, info = backbone_class.from_pretrained(
            name_or_folder, config=copy.deepcopy(config), dtype=dtype, output_loading_info=True, **_options(config)
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


def load_backbone_config(
    name_or_folder: str, changes: Mapping[str, Any] | None = None, **more: Any
) -> PreTrainedConfig:
    """Load the configuration of a pre-trained backbone; without `out_features` among the changes, its last stage.

    Of a model of pictures and text, such as CLIP, it is that of the vision tower.
    """
    if not isinstance(changes, (Mapping, type(None))):
        raise ValueError(f"backbone_config: expected a dictionary of fields to change, got {type(changes).__name__}")
    overrides = {**(changes or {}), **more}
    config = AutoConfig.from_pretrained(name_or_folder)
    config = getattr(config, "vision_config", config)
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


def _options(config: PreTrainedConfig) -> dict[str, Any]:
    """What to build a backbone with: without a pooling layer, where it has one."""
    model_class = None if hasattr(config, "stage_names") else MODEL_MAPPING.get(type(config), None)
    pools = model_class is not None and "add_pooling_layer" in signature(model_class.__init__).parameters
    return {"add_pooling_layer": False} if pools else {}


def freeze(backbone: nn.Module) -> None:
    """Switch off the gradients and the dropout of the backbone."""
    backbone.requires_grad_(False)
    backbone.eval()


@torch.no_grad()
def patch_features(backbone: nn.Module, pixels: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Extract patch features (B, h, w, C), float32, from images (B, 3, H, W), without class and register tokens."""
    height, width = pixels.shape[-2] // patch_size[0], pixels.shape[-1] // patch_size[1]
    pixels = pixels.to(weight_type(backbone) or pixels.dtype)  # not every backbone does it itself
    if hasattr(backbone.config, "stage_names"):
        with fast_layers():
            maps = backbone(pixels).feature_maps
        stages = [stage.permute(0, 2, 3, 1) for stage in maps]  # (B, h, w, C) each
        features = stages[0] if len(stages) == 1 else mean_direction(stages)
    else:
        with fast_layers():
            tokens = _tokens(backbone, pixels, height * width)[:, -height * width :]  # patch tokens come last
        features = tokens.unflatten(1, (height, width)) if tokens.shape[1] == height * width else tokens[:, None]
    if features.shape[1:3] != (height, width):
        raise ValueError(
            f"expected a backbone with {height} x {width} patches for pictures of {tuple(pixels.shape[-2:])} pixels, "
            f"got features of {' x '.join(map(str, features.shape[1:3]))}"
        )
    return features.float().contiguous()


def _tokens(backbone: nn.Module, pixels: Tensor, num_patches: int) -> Tensor:
    """The last hidden state (B, tokens, C) of a plain ViT."""
    options: dict[str, Any] = {"interpolate_pos_encoding": True}
    if (
        getattr(backbone.config, "model_type", "") == "vit_mae"
    ):  # it shuffles the patches by random noise, even if it masks none
        options["noise"] = torch.arange(num_patches, device=pixels.device).expand(len(pixels), -1)
    return backbone(pixels, **options).last_hidden_state


def mean_direction(stages: Sequence[Tensor]) -> Tensor:
    """Average the features (..., C) of several stages, each at length 1, since those of deep stages are longer.

    Differs from the paper, which uses one stage; so do our models, because the last alone is best (docs/choices.md).
    """
    return torch.stack([F.normalize(stage.float(), dim=-1) for stage in stages]).mean(0)
