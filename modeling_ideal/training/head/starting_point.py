"""What training starts from: a new head on a pre-trained backbone, or a trained model."""

from pathlib import Path
from typing import Any

import torch

from ...configuration_ideal import IdealConfig
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from .options import HeadTrainingOptions


def model_on_backbone(folder: str, stage: str | None, no_norm: bool, **config: Any) -> IdealModel:
    """A new head on a stage of a pre-trained backbone, or on several joined by `+`; by default on the last."""
    features: dict[str, Any] = {"apply_layernorm": False} if no_norm else {}
    if stage:
        features["out_features"] = stage.split("+")
    return IdealModel.from_backbone(folder, **{"deviation_encoder": "attention", **features, **config})


def processor_on_backbone(folder: str, model: IdealModel) -> IdealImageProcessor:
    """The processor of a model on a pre-trained backbone, with the normalisation that is stored with the backbone."""
    try:
        stored, _ = IdealImageProcessor.get_image_processor_dict(folder)
    except OSError:  # no preprocessor_config.json: that of ImageNet
        stored = {}
    normalisation = {name: stored[name] for name in ("image_mean", "image_std") if name in stored}
    return IdealImageProcessor(size=model.config.image_size, patch_size=model.config.patch_size[0], **normalisation)


def load_start(options: HeadTrainingOptions) -> tuple[IdealModel, IdealImageProcessor]:
    """The model before training, and its processor; the weights of a new head depend on the seed alone."""
    values = options.config_values()
    if "deviation_encoder" in values and values["deviation_encoder"] is None:
        raise ValueError("config: expected a deviation_encoder to train, got None")
    torch.manual_seed(options.seed)
    if options.model is None:
        model = model_on_backbone(str(options.backbone), options.stage, options.no_norm, **values)
        if Path(str(options.backbone)).is_dir():  # its path on this machine is not saved
            model.config.backbone_config._name_or_path = Path(str(options.backbone)).name
        return model, processor_on_backbone(str(options.backbone), model)
    config = IdealConfig.from_pretrained(options.model)
    for name, value in values.items():
        if name not in _FREE_TO_CHANGE:
            raise ValueError(f"config: expected one of {_FREE_TO_CHANGE} when fine-tuning a model, got {name!r}")
        setattr(config, name, value)
    config.check()
    if config.deviation_encoder is None:  # a model without trained weights gets a new encoder, and other scores
        config.deviation_encoder, config.score_prior = "attention", None
    # Stored weights may be in half precision, which would lose the optimiser's small steps.
    model = IdealModel.from_pretrained(options.model, config=config, dtype=torch.float32)
    return model, IdealImageProcessor.from_pretrained(options.model)


# A trained head has the other fields built in.
_FREE_TO_CHANGE = ("attention_dropout", "discriminability_weight", "loss_form", "orthogonality_weight")
