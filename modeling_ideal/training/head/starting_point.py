"""What training starts from: a new head on a pre-trained backbone, or a trained model."""

from pathlib import Path
from typing import Any

import torch

from ...configuration_ideal import IdealConfig
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from .options import TrainingArguments


def model_on_backbone(folder: str, stage: str | None, no_norm: bool, **config: Any) -> IdealModel:
    """A new head on a stage of a pre-trained backbone, or several joined by `+`; by default its last."""
    options: dict[str, Any] = {"apply_layernorm": False} if no_norm else {}
    if stage:
        options["out_features"] = stage.split("+")
    return IdealModel.from_backbone(folder, **options, **config)


def load_start(arguments: TrainingArguments) -> tuple[IdealModel, IdealImageProcessor]:
    """The model before training and its processor; a new head is a function of the seed."""
    values = arguments.config_values()
    torch.manual_seed(arguments.seed)
    if arguments.model is None:
        model = model_on_backbone(str(arguments.backbone), arguments.stage, arguments.no_norm, **values)
        if Path(str(arguments.backbone)).is_dir():  # where it lies is nobody else's business
            model.config.backbone_config._name_or_path = Path(str(arguments.backbone)).name
        patch_size = model.config.patch_size[0]
        return model, IdealImageProcessor(size=model.config.image_size, patch_size=patch_size)
    config = IdealConfig.from_pretrained(arguments.model)
    for name, value in values.items():
        if name not in _FREE_TO_CHANGE:
            raise ValueError(f"config: expected one of {_FREE_TO_CHANGE} when fine-tuning a model, got {name!r}")
        setattr(config, name, value)
    config.check()
    # Weights may be stored in half precision, in which small steps of the optimiser would be lost.
    model = IdealModel.from_pretrained(arguments.model, config=config, dtype=torch.float32)
    return model, IdealImageProcessor.from_pretrained(arguments.model)


# What a trained head leaves open: the losses, and dropout.
_FREE_TO_CHANGE = ("attention_dropout", "discriminability_weight", "loss_form", "orthogonality_weight")
