"""How well a student agrees with its teacher: the loss it is trained by, and the measure on pictures held out."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from .teacher import CachedTeacher


def mapped_features(student: nn.Module, pixels: Tensor, basis: Tensor) -> Tensor:
    """(n, h, w, C): the student's features of pictures (n, 3, H, W) in the teacher's space, by the basis (C, c)."""
    return student(pixels).feature_maps[0].permute(0, 2, 3, 1) @ basis.T


def distillation_loss(mapped: Tensor, target: Tensor, variance: Tensor) -> Tensor:
    """How far the student's mapped features are from the teacher's; both (n, h, w, C).

    Most of a feature is common to all patches of its picture, while IDEAL compares what is left. So the cosine is
    taken twice, of the features and of what they are beside the teacher's mean over the picture. Smooth L1, in
    units of the latter's size (its `variance` in the batch), keeps the lengths.
    """
    cosine, centred_cosine = patch_cosines(mapped, target)
    scale = variance.sqrt().clamp_min(1e-6)
    return 2 - cosine.mean() - centred_cosine.mean() + F.smooth_l1_loss(mapped / scale, target / scale)


def centred_variance(target: Tensor) -> Tensor:
    """Mean square of features (n, h, w, C) beside their mean over the picture."""
    return (target - _common(target)).square().mean()


def patch_cosines(mapped: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(n, h, w) cosines of features (n, h, w, C), and of the same less the target's mean over its picture."""
    common = _common(target)
    return (
        F.cosine_similarity(mapped, target, dim=-1),
        F.cosine_similarity(mapped - common, target - common, dim=-1),
    )


@torch.no_grad()
def measure_agreement(
    student: nn.Module, basis: Tensor, teacher: CachedTeacher, images: Iterable[Image.Image]
) -> dict[str, float]:
    """Mean cosines over all patches of pictures, one picture at a time."""
    cosines = []
    for image in images:
        pixels = teacher.processor(query=[image])["query"].to(basis.device)
        target = teacher([image]).to(basis.device)
        cosines.append(
            torch.stack([part.mean() for part in patch_cosines(mapped_features(student, pixels, basis), target)])
        )
    cosine, centred_cosine = torch.stack(cosines).mean(0).tolist()
    return {"cosine": cosine, "centred_cosine": centred_cosine}


def _common(target: Tensor) -> Tensor:
    return target.mean(dim=(1, 2), keepdim=True)
