"""Reference images to what encoding a reference set needs: features, marked patches, and patches in other poses."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .masks import patch_masks
from .turned_copies import turned_patches


class ReferenceFeatures(NamedTuple):
    """R reference sets, or one that all queries share; the arguments of `IdealModel.encode_features`."""

    normal: Tensor | None  # (R, L1, h, w, C)
    abnormal: Tensor | None  # (R, L2, h, w, C)
    marked: Tensor | None  # (R, L2, h, w), bool
    turned: Tensor | None  # (R, L1, P, C)


def reference_features(
    normal_refs: Tensor | None,
    abnormal_refs: Tensor | None,
    masks: Tensor | None,
    patch_size: tuple[int, int],
    poses: int,
    extract: Callable[[Tensor], Tensor],
) -> ReferenceFeatures:
    """Extract the features of reference images, whose shapes are those of `IdealModel.forward`.

    Args:
        normal_refs: (L1, 3, H, W) or (R, L1, 3, H, W) or None.
        abnormal_refs: (L2, 3, H, W) or (R, L2, 3, H, W) or None.
        masks: (L2, H, W) or (R, L2, H, W), non-zero where anomalous, or None.
        patch_size: height and width of a patch in pixels.
        poses: number of poses in which normal references count.
        extract: images (n, 3, H, W) to features (n, h, w, C).
    """
    normal, abnormal = (_features(images, extract) for images in (normal_refs, abnormal_refs))
    known = abnormal if normal is None else normal
    marked = turned = None
    if masks is not None and known is not None:
        masks = masks.to(known.device)
        marked = patch_masks(masks if masks.ndim == 4 else masks[None], patch_size)
    if normal is not None and normal_refs is not None:
        images = normal_refs.reshape(-1, *normal_refs.shape[-3:])
        turned = turned_patches(images, normal.flatten(0, 1), poses, extract)
        turned = None if turned is None else turned.unflatten(0, normal.shape[:2])
    return ReferenceFeatures(normal, abnormal, marked, turned)


def _features(images: Tensor | None, extract: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Features (1 or R, L, h, w, C) of images (L, 3, H, W) or (R, L, 3, H, W)."""
    if images is None:
        return None
    images = images if images.ndim == 5 else images[None]
    return extract(torch.flatten(images, 0, 1)).unflatten(0, images.shape[:2])
