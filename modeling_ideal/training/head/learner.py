"""What a run trains: the head of IDEAL, or one of its rivals."""

from dataclasses import dataclass

import torch
from torch import nn

from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ..encoder import BackboneEncoder
from ..rivals.registry import make_rival
from ..rivals.rival import Rival
from .objective import EpisodeLoss
from .options import HeadTrainingOptions
from .starting_point import load_start, model_on_backbone, processor_on_backbone


@dataclass(frozen=True)
class Learner:
    """The parts of a run that differ between IDEAL and its rivals.

    Args:
        encoder: the frozen backbone with its preprocessing.
        result: what the run leaves, a model or a rival.
        head: the part of it that is trained.
        objective: episodes to losses, a module that holds the head.
    """

    encoder: BackboneEncoder
    result: IdealModel | Rival
    head: nn.Module
    objective: nn.Module

    @property
    def processor(self) -> IdealImageProcessor:
        """The preprocessing, which is saved with the result."""
        return self.encoder.processor


def load_learner(options: HeadTrainingOptions, device: torch.device) -> Learner:
    """What the options ask for, before training; new weights depend on the seed alone."""
    if options.method is not None:
        return _rival(options, options.method, device)
    model, processor = load_start(options)
    if model.deviation_encoder is None:
        raise ValueError("expected a model with a deviation encoder to train, got a training-free one")
    model.to(device)
    return Learner(BackboneEncoder(model, processor), model, model.deviation_encoder, EpisodeLoss(model))


def _rival(options: HeadTrainingOptions, method: str, device: torch.device) -> Learner:
    folder = str(options.backbone)
    settings = options.config_values()
    size = {"image_size": settings.pop("image_size")} if "image_size" in settings else {}
    model = model_on_backbone(folder, options.stage, options.no_norm, deviation_encoder=None, **size)
    encoder = BackboneEncoder(model.to(device), processor_on_backbone(folder, model))
    torch.manual_seed(options.seed)
    rival = make_rival(method, model.config.hidden_size, settings)
    rival.encoder = encoder.fingerprint
    return Learner(encoder, rival.to(device), rival, rival)
