"""The frozen backbone with its preprocessing, as the feature cache of `modeling_ideal.data` asks for it."""

from functools import cached_property

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..image_processing_ideal import IdealImageProcessor
from ..masks import resize_mask
from ..modeling_ideal import IdealModel
from ..references import model_fingerprint


class BackboneEncoder:
    """Pictures to patch features; the head has no part in it, so training it leaves the cache as it is."""

    def __init__(self, model: IdealModel, processor: IdealImageProcessor) -> None:
        self.model = model
        self.processor = processor

    @cached_property
    def fingerprint(self) -> str:
        """Of the backbone's weights, its stage and the preprocessing."""
        backbone = self.model.backbone
        settings = self.processor.to_dict()
        settings.pop("auto_map", None)  # where its code is, in a saved one
        return model_fingerprint([settings], self.model.config.backbone_config.to_dict(), backbone.named_parameters())

    @torch.no_grad()
    def __call__(self, images: list[Image.Image]) -> Tensor:
        """(n, h, w, C) patch features of n pictures."""
        return self.model.extract_features(self.processor(query=images)["query"])

    def prepare_mask(self, mask: Image.Image) -> Tensor:
        """(H, W) bool: the mask of a picture at the size that the backbone sees of it."""
        array = np.asarray(mask) != 0
        return torch.from_numpy(resize_mask(array, self.processor.target_size((array.shape[0], array.shape[1]))))
