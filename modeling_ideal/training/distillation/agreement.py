"""How well a student agrees with its teacher: the training loss, and the metrics on held-out pictures."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from .teacher import CachedTeacher


def mapped_features(student: nn.Module, pixels: Tensor, basis: Tensor) -> Tensor:
    """(n, h, w, C): student features of pictures (n, 3, H, W), mapped to the teacher's space by the basis (C, c)."""
    return student(pixels).feature_maps[0].permute(0, 2, 3, 1) @ basis.T


def distillation_loss(mapped: Tensor, target: Tensor, variance: Tensor) -> Tensor:
    """Distance of the student's mapped features from the teacher's; both (n, h, w, C).

    Most of a feature is common to all patches of its picture, but IDEAL compares the rest. So the loss takes the
    cosine both of the features and of the features centred by the teacher's mean over the picture. Smooth L1, in
    units of the centred features' size (the square root of their `variance` in the batch), preserves lengths.
    """
    cosine, centred_cosine = patch_cosines(mapped, target)
    scale = variance.sqrt().clamp_min(1e-6)
    return 2 - cosine.mean() - centred_cosine.mean() + F.smooth_l1_loss(mapped / scale, target / scale)


def centred_variance(target: Tensor) -> Tensor:
    """Mean square of features (n, h, w, C), centred by their mean over each picture."""
    return (target - _picture_mean(target)).square().mean()


def patch_cosines(mapped: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(n, h, w) cosines of features (n, h, w, C), plain and centred by the target's mean over each picture."""
    mean = _picture_mean(target)
    return (
        F.cosine_similarity(mapped, target, dim=-1),
        F.cosine_similarity(mapped - mean, target - mean, dim=-1),
    )


@torch.no_grad()
def measure_agreement(
    student: nn.Module, basis: Tensor, teacher: CachedTeacher, images: Iterable[Image.Image]
) -> dict[str, float]:
    """Mean cosines over all patches of some pictures, encoded one at a time."""
    cosines = []
    for image in images:
        pixels = teacher.processor(query=[image])["query"].to(basis.device)
        target = teacher([image]).to(basis.device)
        cosines.append(
            torch.stack([part.mean() for part in patch_cosines(mapped_features(student, pixels, basis), target)])
        )
    cosine, centred_cosine = torch.stack(cosines).mean(0).tolist()
    return {"cosine": cosine, "centred_cosine": centred_cosine}


def _picture_mean(target: Tensor) -> Tensor:
    return target.mean(dim=(1, 2), keepdim=True)
