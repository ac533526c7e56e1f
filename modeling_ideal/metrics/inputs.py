"""Checks of the metrics' inputs: every ValueError says what was expected and what was given."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

Values: TypeAlias = ArrayLike | torch.Tensor
Images: TypeAlias = Values | Sequence[Values]


def as_array(name: str, values: Values) -> np.ndarray:
    """Convert to a NumPy array of numbers or booleans; tensors may be on any device and require gradients."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        # NumPy has no bfloat16; float32 represents all of its values.
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    else:
        try:
            array = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}: expected numbers in one array, got {type(values).__name__} ({error})"
            ) from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected numbers, got {array.dtype}")
    return array


def as_scores(name: str, values: Values) -> np.ndarray:
    """Convert to finite scores in float32 or float64, exactly (except integers beyond 2^53)."""
    array = as_array(name, values)
    array = array.astype(np.float32 if array.dtype in (np.float16, np.float32) else np.float64, copy=False)
    _check_finite(name, array)
    return array


def as_anomalous(name: str, values: Values) -> np.ndarray:
    """Convert masks to booleans: every non-zero pixel is anomalous, including grey borders in masks of 0 and 255."""
    array = as_array(name, values)
    if array.dtype.kind == "f":
        _check_finite(name, array)
    return array if array.dtype == np.bool_ else array != 0


def read_image_scores(scores: Values, labels: Values) -> tuple[np.ndarray, np.ndarray]:
    """Convert and check image scores (n,), and whether each image is anomalous (n,).

    Unlike masks, labels must be 0 or 1: labels of -1 and 1 are common too, and as "not zero" all of them would be
    anomalous.
    """
    score_array, label_array = as_scores("scores", scores), as_array("labels", labels)
    if score_array.ndim != 1 or not score_array.size:
        raise ValueError(f"scores: expected shape (n,) with at least one image, got {score_array.shape}")
    if label_array.shape != score_array.shape:
        raise ValueError(f"labels: expected the shape of scores, {score_array.shape}, got {label_array.shape}")
    if not ((label_array == 0) | (label_array == 1)).all():
        raise ValueError(f"labels: expected 0 (normal) or 1 (anomalous), got {np.unique(label_array)[:5].tolist()}")
    return score_array, label_array == 1


def read_pixel_scores(maps: Images, masks: Images) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Convert and check maps, yielding pairs of scores (n, H, W) and whether each pixel is anomalous (n, H, W).

    There is one pair for an array or tensor (n, H, W), and one pair per image (n = 1) for a list, whose images may
    differ in size.
    """
    if not isinstance(maps, list | tuple):
        yield _read_stack("maps", maps, "masks", masks, 3)
        return
    if not isinstance(masks, list | tuple | np.ndarray | torch.Tensor):
        raise ValueError(f"masks: expected a list of masks (H, W), as for maps, got {type(masks).__name__}")
    if not maps or len(masks) != len(maps):
        raise ValueError(f"expected at least one map and a mask for each, got {len(maps)} maps and {len(masks)} masks")
    for index in range(len(maps)):
        yield _read_stack(f"maps[{index}]", maps[index], f"masks[{index}]", masks[index], 2)


def check_fraction(name: str, value: float) -> None:
    """Check that a number is in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"{name}: expected a number in (0, 1], got {value}")


def _read_stack(
    maps_name: str, maps: Any, masks_name: str, masks: Any, dimensions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Convert and check one stack (n, H, W), or one image (H, W) as a stack of one."""
    scores, anomalous = as_scores(maps_name, maps), as_anomalous(masks_name, masks)
    if scores.ndim != dimensions or not scores.size:
        expected = "(n, H, W), or a list of maps (H, W)," if dimensions == 3 else "(H, W)"
        raise ValueError(f"{maps_name}: expected shape {expected} with at least one pixel, got {scores.shape}")
    if anomalous.shape != scores.shape:
        raise ValueError(f"{masks_name}: expected the shape of {maps_name}, {scores.shape}, got {anomalous.shape}")
    return (scores, anomalous) if dimensions == 3 else (scores[None], anomalous[None])


def _check_finite(name: str, array: np.ndarray) -> None:
    if count := array.size - int(np.count_nonzero(np.isfinite(array))):
        raise ValueError(f"{name}: expected finite values, got {count} that are NaN or infinite")
