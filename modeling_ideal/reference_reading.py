"""Reference pictures through the backbone, each once; those that are known already, not at all."""

import hashlib
from dataclasses import replace

import torch
from torch import Tensor

from .augmentation import altered_copies, altered_masks
from .input_checks import check_references
from .masks import patch_masks
from .modeling_ideal import IdealModel
from .reference_pictures import PictureGroup, ReferencePictures, check_different
from .turned_copies import turned_patches


@torch.no_grad()
def read_pictures(
    model: IdealModel,
    normal_refs: Tensor | None = None,
    abnormal_refs: Tensor | None = None,
    masks: Tensor | None = None,
    *,
    false_alarm: float | None = None,
    known: ReferencePictures | None = None,
) -> ReferencePictures:
    """Read the pictures of one reference set, on the model's device.

    Args:
        model: an `IdealModel`.
        normal_refs: (L1, 3, H, W), or None.
        abnormal_refs: (L2, 3, H, W), or None, but not both.
        masks: (L2, H, W), non-zero where anomalous, or None.
        false_alarm: see `ReferencePictures`; None for that of `known`.
        known: pictures that these join.
    """
    check_references(normal_refs, abnormal_refs, masks, model.config.patch_size, model.config.num_channels)
    for name, images in (("normal_refs", normal_refs), ("abnormal_refs", abnormal_refs)):
        if images is not None and images.ndim != 4:
            raise ValueError(f"{name}: expected one reference set (n, 3, H, W), got {tuple(images.shape)}")
    known = ReferencePictures(None, None) if known is None else known.to(model.device)
    false_alarm = known.false_alarm if false_alarm is None else false_alarm
    calibrated = false_alarm is None or false_alarm > 0
    pictures = ReferencePictures(
        _group(model, normal_refs, None, known.normal, "normal", calibrated),
        _group(model, abnormal_refs, masks, known.abnormal, "abnormal", calibrated),
        false_alarm,
        known.max_patches,
    )
    if pictures.normal is not None and pictures.abnormal is not None:
        check_different(pictures.normal.hashes, pictures.abnormal.hashes)
    return pictures


def _group(
    model: IdealModel,
    images: Tensor | None,
    masks: Tensor | None,
    known: PictureGroup | None,
    kind: str,
    calibrated: bool,
) -> PictureGroup | None:
    """Read pictures (L, 3, H, W) of one kind, with their masks (L, H, W), and put them after the known ones."""
    if images is None:
        return known
    features = model.extract_in_parts(images)
    poses = model.config.num_rotations if kind == "normal" else 1
    turned = turned_patches(images, features, poses, model.extract_in_parts)
    hashes = [_hash(image) for image in images]
    group = PictureGroup(features, hashes, marked=_patches(model, masks), turned=turned)
    group = group if known is None else known.joined(group, kind)
    if not calibrated or group.copies is not None or len(group.distinct()) > 1:
        return group
    patch_size = model.config.patch_size
    copies = model.extract_in_parts(altered_copies(images[:1], patch_size))
    moved = None if masks is None else altered_masks(masks[:1], patch_size)
    return replace(group, copies=copies, marked_copies=_patches(model, moved))


def _patches(model: IdealModel, masks: Tensor | None) -> Tensor | None:
    """Reduce pixel masks (L, H, W) to patch masks (L, h, w), bool."""
    return None if masks is None else patch_masks(masks.to(model.device), model.config.patch_size)


def _hash(image: Tensor) -> str:
    """A hash of the values and the shape of an image (3, H, W)."""
    content = image.detach().cpu().contiguous().view(torch.uint8).numpy()  # bytes, since NumPy does not know all types
    return hashlib.sha256(repr((str(image.dtype), tuple(image.shape))).encode() + content.tobytes()).hexdigest()
