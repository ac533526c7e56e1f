"""The frozen backbone with its preprocessing, as the feature cache of `modeling_ideal.data` expects it."""

from functools import cached_property

import torch
from PIL import Image
from torch import Tensor

from ..fingerprint import model_fingerprint
from ..image_processing_ideal import IdealImageProcessor
from ..masks import marked_pixels, resize_mask
from ..modeling_ideal import IdealModel


class BackboneEncoder:
    """Pictures to patch features. The head is not involved, so the cache stays valid while it trains."""

    def __init__(self, model: IdealModel, processor: IdealImageProcessor) -> None:
        self.model = model
        self.processor = processor

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the backbone's weights, its stage and the preprocessing."""
        settings = self.processor.to_dict()
        settings.pop("auto_map", None)  # a saved processor has it: where to find its code
        return model_fingerprint(settings, self.model.config.backbone_config, self.model.backbone)

    @torch.no_grad()
    def __call__(self, images: list[Image.Image]) -> Tensor:
        """(n, h, w, C) patch features of n pictures."""
        pixels = self.processor(query=images)["query"]
        # On a CPU a batch gains nothing, and the digits of one picture must not depend on those encoded with it.
        return self.model.extract_features(pixels, at_once=1 if self.model.device.type == "cpu" else None)

    def prepare_mask(self, mask: Image.Image) -> Tensor:
        """(H, W) bool: the mask of a picture, resized as the picture is for the backbone."""
        array = marked_pixels(mask, "mask")
        return torch.from_numpy(resize_mask(array, self.processor.target_size((array.shape[0], array.shape[1]))))
