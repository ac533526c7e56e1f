"""Checks of the model's inputs: every ValueError says what was expected and what was given."""

from collections.abc import Callable, Sized
from numbers import Real

import torch
from torch import Tensor, nn

MOST_SMOOTHING = 512  # pixels; a Gaussian wider than a map makes it flat, and takes any memory


def check_images(
    name: str, images: Tensor, dimensions: tuple[int, ...], patch_size: tuple[int, int], channels: int
) -> None:
    """Check that images (..., 3, H, W) are finite floats in whole patches, with an allowed number of dimensions."""
    shapes = " or ".join({4: "(n, 3, H, W)", 5: "(batch, n, 3, H, W)"}[count] for count in dimensions)
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = f"{images.dtype} tensor" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"{name}: expected a float tensor {shapes}, as IdealImageProcessor makes it, got {got}")
    shape = tuple(images.shape)
    if images.ndim not in dimensions:
        raise ValueError(f"{name}: expected shape {shapes}, got {shape}")
    if 0 in shape[:-3]:
        raise ValueError(f"{name}: expected at least one image, got shape {shape}")
    if shape[-3] != channels:
        raise ValueError(f"{name}: expected {channels} channels in {shapes}, got {shape[-3]} in {shape}")
    height, width = shape[-2:]
    if height < patch_size[0] or width < patch_size[1]:
        raise ValueError(f"{name}: expected at least one patch of {patch_size} pixels, got {(height, width)}")
    if height % patch_size[0] or width % patch_size[1]:
        raise ValueError(
            f"{name}: expected height and width to be multiples of the patch size {patch_size}, got {(height, width)}"
        )
    check_finite(name, images)


def check_finite(name: str, values: Tensor) -> None:
    """Check that no value is NaN or infinite."""
    # The sum is not finite if any value is not, and is much cheaper than a test of every value.
    if not torch.isfinite(values.sum(dtype=torch.float32)) and (count := int((~torch.isfinite(values)).sum())):
        raise ValueError(f"{name}: expected finite values, got {count} that are NaN or infinite")


def weight_type(backbone: nn.Module) -> torch.dtype | None:
    """The data type of the weights of a backbone; None if they are in an ONNX file."""
    return next((weight.dtype for weight in backbone.parameters() if weight.is_floating_point()), None)


def checked_features(features: Tensor, backbone: nn.Module) -> Tensor:
    """Return the features of a backbone, if they are finite."""
    try:
        check_finite("features of the backbone", features)
    except ValueError as error:
        device = features.device.type
        used = weight_type(backbone) or torch.float32
        used = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else used
        cause = "its weights may be damaged" if used == torch.float32 else f"{used} may be too narrow, try float32"
        raise ValueError(f"{error}; {cause}") from None
    return features


def check_references(
    normal_refs: Tensor | None,
    abnormal_refs: Tensor | None,
    masks: Tensor | None,
    patch_size: tuple[int, int],
    channels: int,
) -> None:
    """Check that there are references of at least one kind, and masks only with abnormal ones."""
    if normal_refs is None and abnormal_refs is None:
        raise ValueError("expected normal_refs, abnormal_refs or references, got none of them")
    for name, images in (("normal_refs", normal_refs), ("abnormal_refs", abnormal_refs)):
        if images is not None:
            check_images(name, images, (4, 5), patch_size, channels)
    if masks is not None:
        if abnormal_refs is None:
            raise ValueError("masks: expected abnormal_refs with them, got none")
        check_reference_masks(masks, abnormal_refs)


def check_reference_masks(masks: Tensor, abnormal_refs: Tensor) -> None:
    """Check that each abnormal reference (..., L2, 3, H, W) has a non-empty mask (..., L2, H, W)."""
    expected = (*abnormal_refs.shape[:-3], *abnormal_refs.shape[-2:])
    if not isinstance(masks, Tensor) or tuple(masks.shape) != expected:
        got = tuple(masks.shape) if isinstance(masks, Tensor) else type(masks).__name__
        raise ValueError(f"masks: expected a mask for each abnormal reference, of its size, {expected}, got {got}")
    if masks.is_floating_point():
        check_finite("masks", masks)
    empty = (masks != 0).flatten(-2).any(-1).logical_not().nonzero().tolist()
    if empty:
        raise ValueError(
            f"masks: expected at least one anomalous (non-zero) pixel in each, got none in mask(s) "
            f"{[index[0] if len(index) == 1 else tuple(index) for index in empty]}; "
            "with masks=None the model finds the defects itself"
        )


def check_targets(query_masks: Tensor | None, labels: Tensor | None, query: Tensor) -> None:
    """Check query masks (B, H, W) and labels (B,) of 0 and 1; both or neither may be given."""
    if query_masks is None and labels is None:
        return
    if query_masks is None or labels is None:
        raise ValueError(
            "expected both query_masks and labels, or neither, "
            f"got {'no query_masks' if query_masks is None else 'no labels'}"
        )
    expected = (query.shape[0], *query.shape[-2:])
    for name, values, shape in (("query_masks", query_masks, expected), ("labels", labels, expected[:1])):
        if not isinstance(values, Tensor) or tuple(values.shape) != shape:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"{name}: expected shape {shape}, got {got}")
    if query_masks.is_floating_point():
        check_finite("query_masks", query_masks)
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise ValueError(f"labels: expected 0 (normal) or 1 (anomalous), got {sorted(set(labels.tolist()))}")


def check_counts(**groups: Sized | None) -> None:
    """Check that the given groups have the same number of entries, except those with one, which all share.

    A single entry of `queries` is no exception: it has a single reference set.
    """
    counts = {name: len(group) for name, group in groups.items() if group is not None}
    number = counts.get("queries", max(counts.values(), default=1))
    if set(counts.values()) - {1, number}:
        raise ValueError(f"expected references shared by the batch or one set for each query, got {counts}")


def check_number(name: str, value: float | None, expected: str, holds: Callable[[float], bool]) -> None:
    """Check that a value is None or a number for which `holds` is true, which `expected` says in words."""
    if value is not None and not (isinstance(value, Real) and not isinstance(value, bool) and holds(value)):
        raise ValueError(f"{name}: expected a number {expected}, got {value!r}")


def check_smoothing(value: float | None) -> None:
    """Check the standard deviation of a map's smoothing, in pixels."""
    check_number("smoothing", value, f"in 0..{MOST_SMOOTHING}", lambda deviation: 0 <= deviation <= MOST_SMOOTHING)
