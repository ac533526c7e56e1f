"""The frozen backbone with its preprocessing, as the feature cache of `modeling_ideal.data` expects it."""

from functools import cached_property

import torch
from PIL import Image
from torch import Tensor

from ..fingerprint import model_fingerprint
from ..image_processing_ideal import IdealImageProcessor
from ..masks import marked_pixels, resize_mask
from ..modeling_ideal import IdealModel
from ..turned_copies import turned_copies


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


class PoseEncoder(BackboneEncoder):
    """Pictures to the features of their copies in other poses, one below the other: (n, (poses - 1) * h, w, C)."""

    def __init__(self, model: IdealModel, processor: IdealImageProcessor, poses: int) -> None:
        super().__init__(model, processor)
        self.poses = poses

    @cached_property
    def fingerprint(self) -> str:
        """That of the encoder of upright pictures, with the number of poses."""
        return f"{BackboneEncoder(self.model, self.processor).fingerprint}, {self.poses} poses"

    @torch.no_grad()
    def __call__(self, images: list[Image.Image]) -> Tensor:
        """(n, (poses - 1) * h, w, C) patch features of the turned copies of n pictures."""
        pixels = self.processor(query=images)["query"]
        strips = [
            self.model.extract_features(turned_copies(picture[None], self.poses)[0], at_once=1).flatten(0, 1)
            for picture in pixels
        ]
        return torch.stack(strips)
