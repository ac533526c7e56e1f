"""The teacher of a distillation: a frozen backbone that encodes each picture once and caches the features."""

import hashlib
from pathlib import Path

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from ...data.images import content_hash
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...writing.files import write_atomically
from ..encoder import BackboneEncoder


class CachedTeacher:
    """Patch features of pictures, computed once per picture and kept in `directory` as float16.

    They are those of a layer, `normed` by the final norm if the student has it. A student without it works in another
    basis and has no mean over the channels, so theirs is taken off.
    """

    def __init__(self, name_or_folder: str, stage: int, normed: bool, image_size: int, directory: str | Path) -> None:
        self._normed = normed
        model = IdealModel.from_backbone(
            name_or_folder, out_features=[f"stage{stage}"], apply_layernorm=normed, image_size=image_size
        )
        self.backbone = model.backbone
        self.processor = IdealImageProcessor(size=image_size, patch_size=model.config.patch_size[0])
        self._encoder = BackboneEncoder(model, self.processor)
        key = hashlib.blake2b(self._encoder.fingerprint.encode(), digest_size=16).hexdigest()
        self.directory = Path(directory).expanduser() / key
        self.directory.mkdir(parents=True, exist_ok=True)

    def __call__(self, images: list[Image.Image]) -> Tensor:
        """(n, h, w, C) float32 patch features of n pictures."""
        files = [self.directory / f"{content_hash(image)}.safetensors" for image in images]
        missing = [index for index, file in enumerate(files) if not file.exists()]
        if missing:
            features = self._encoder([images[index] for index in missing]).to("cpu", torch.float16)
            for index, feature in zip(missing, features, strict=True):
                write_atomically(files[index], save({"features": feature.contiguous()}))
        features = torch.stack([_read(file) for file in files]).float()
        return features if self._normed else features - features.mean(-1, keepdim=True)


def _read(file: Path) -> Tensor:
    with safe_open(file, framework="pt") as tensors:
        return tensors.get_tensor("features")
