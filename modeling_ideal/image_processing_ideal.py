"""Image processor of IDEAL: turns query, references and masks into tensors, and resizes anomaly maps to the images."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BatchFeature
from transformers.image_processing_backends import PilBackend

from .image_inputs import ImageInput, image_list, is_single_image, load_image, resize_image
from .input_checks import check_smoothing
from .masks import MaskInput, load_mask, mask_list, resize_mask

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LOADED = "_loaded"  # marks the values of a file, which may hold names that this version does not know
SMOOTHING_REACH = 4.0  # radius of the Gaussian kernel in standard deviations
SMOOTHING_BLOCK = 64  # pixels, see _smooth_rows


class IdealImageProcessorSettings(TypedDict, total=False):
    """The settings of an `IdealImageProcessor`, which are saved with it."""

    size: dict[str, int] | int
    patch_size: int
    keep_aspect_ratio: bool
    image_mean: Sequence[float]
    image_std: Sequence[float]


class IdealImageProcessor(PilBackend):
    """Turns images of any kind and size into the inputs of `IdealModel`.

    Args:
        size: height and width in pixels after resizing; one number for a square.
        patch_size: patch size of the backbone; height and width must be multiples of it.
        keep_aspect_ratio: resize each image to about the area of `size`, keeping its aspect ratio up to whole
            patches, instead of resizing to `size` as in the paper. All images of a batch must then have the same
            aspect ratio.
        image_mean: mean of each channel, for normalisation.
        image_std: standard deviation of each channel, for normalisation.
    """

    model_input_names: ClassVar[list[str]] = ["query", "normal_refs", "abnormal_refs", "masks"]
    valid_kwargs = IdealImageProcessorSettings

    size: ClassVar[dict[str, int]] = {"height": 448, "width": 448}
    patch_size = 14
    keep_aspect_ratio = False
    image_mean = IMAGENET_MEAN
    image_std = IMAGENET_STD

    def __init__(self, **kwargs: Any) -> None:
        expected = sorted(IdealImageProcessorSettings.__annotations__)
        unknown = sorted(name for name in kwargs if name not in expected and not name.startswith("_"))
        if not kwargs.pop(LOADED, False) and unknown:
            raise ValueError(f"IdealImageProcessor expected settings among {expected}, got unknown {unknown}")
        if isinstance(kwargs.get("size"), int):
            kwargs["size"] = {"height": kwargs["size"], "width": kwargs["size"]}
        super().__init__(**kwargs)
        sides = (self.size["height"], self.size["width"])
        whole = all(isinstance(side, int) and side >= 1 for side in (*sides, self.patch_size))
        if not whole or any(side % self.patch_size for side in sides):
            raise ValueError(f"size: expected multiples of patch_size {self.patch_size}, got {sides}")
        for name, least in (("image_mean", -math.inf), ("image_std", 0.0)):
            values = getattr(self, name)
            listed = isinstance(values, (Sequence, np.ndarray)) and len(values) == len(IMAGENET_MEAN)
            if not listed or not all(isinstance(value, Real) and least < float(value) < math.inf for value in values):
                numbers = "finite numbers" if name == "image_mean" else "numbers > 0"
                raise ValueError(f"{name}: expected three {numbers}, got {values!r}")
        if not isinstance(self.keep_aspect_ratio, bool):
            raise ValueError(f"keep_aspect_ratio: expected True or False, got {self.keep_aspect_ratio!r}")

    @classmethod
    def from_dict(cls, image_processor_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a processor from the values of a file, keeping those that another version has written."""
        return super().from_dict({**image_processor_dict, LOADED: True}, **kwargs)

    def __call__(
        self,
        query: ImageInput | Sequence[ImageInput] | None = None,
        normal_refs: Sequence | ImageInput | None = None,
        abnormal_refs: Sequence | ImageInput | None = None,
        masks: Sequence | MaskInput | None = None,
        return_tensors: str | None = "pt",
    ) -> BatchFeature:
        """Prepare images and masks for the model: `model(**processor(query=..., normal_refs=...))`.

        Args:
            query: one image or a list of B images.
            normal_refs: one image or a list of L1 images, or a list of B such lists, one for each query.
            abnormal_refs: one image or a list of L2 images, or a list of B such lists.
            masks: one mask for each abnormal reference, nested in the same way.
            return_tensors: `"pt"` for torch, `"np"` for NumPy.

        Returns:
            What was given of `"query"` (B, 3, H, W), `"normal_refs"` (L1, 3, H, W) or (B, L1, 3, H, W),
            `"abnormal_refs"` (L2, 3, H, W) or (B, L2, 3, H, W), and `"masks"` (L2, H, W) or (B, L2, H, W), bool.
        """
        if masks is not None and abnormal_refs is None:
            raise ValueError("masks: expected abnormal_refs with them, got none")
        data: dict[str, np.ndarray] = {}
        for name, images in (("query", query), ("normal_refs", normal_refs), ("abnormal_refs", abnormal_refs)):
            if images is not None:
                data[name] = self._images(images, masks if name == "abnormal_refs" else None, name, data)
        return BatchFeature(data, tensor_type=return_tensors)

    preprocess = __call__

    def post_process_anomaly_detection(
        self, outputs: Any, target_sizes: Sequence[tuple[int, int]] | Tensor | None = None, smoothing: float = 4.0
    ) -> list[Tensor]:
        """Smooth the anomaly maps and resize them to the original images.

        Args:
            outputs: the output of the model.
            target_sizes: (height, width) of each image, (B, 2) as a tensor; None keeps the size of the model's input.
            smoothing: standard deviation of the Gaussian smoothing, in pixels of the model's input; 0 for none.

        Returns:
            B tensors (height, width) in [0, 1].
        """
        maps = outputs.anomaly_maps
        check_smoothing(smoothing)
        sizes = [tuple(maps.shape[1:])] * len(maps) if target_sizes is None else [*map(_two_sides, target_sizes)]
        if len(sizes) != len(maps):
            raise ValueError(f"target_sizes: expected one for each of {len(maps)} maps, got {len(sizes)}")
        maps = gaussian_smoothing(maps, smoothing) if smoothing else maps
        return [
            F.interpolate(part[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]
            for part, size in zip(maps, sizes, strict=True)
        ]

    def _images(self, images: Any, masks: Any, name: str, data: dict) -> np.ndarray:
        """Prepare images as one array, nested as they were given, and put their masks into `data`."""
        images = image_list(images, name)
        if not images:
            raise ValueError(f"{name}: expected at least one image, got an empty list")
        if masks is not None:
            masks = mask_list(masks, len(images))
            if len(masks) != len(images):
                raise ValueError(f"masks: expected one for each of {len(images)} entries of {name}, got {len(masks)}")
        if name != "query" and not all(is_single_image(image) for image in images):
            return self._nested_images(images, masks, name, data)
        pixels, resized_masks = [], []
        for index, image in enumerate(images):
            array = load_image(image, f"{name}[{index}]")
            size = self.target_size((array.shape[0], array.shape[1]))
            pixels.append(self._normalise(resize_image(array, size)))
            if masks is not None:
                mask = load_mask(masks[index], (array.shape[0], array.shape[1]), f"masks[{index}]")
                resized_masks.append(resize_mask(mask, size))
        if resized_masks:
            data["masks"] = _stack(resized_masks, "masks")
        return _stack(pixels, name)

    def _nested_images(self, images: list, masks: list | None, name: str, data: dict) -> np.ndarray:
        """Prepare a list of references for each query."""
        parts: list[np.ndarray] = []
        part_masks: list[np.ndarray] = []
        for index, part in enumerate(images):
            inner: dict[str, np.ndarray] = {}
            parts.append(self._images(part, None if masks is None else masks[index], f"{name}[{index}]", inner))
            part_masks.extend(inner.values())
        if part_masks:
            data["masks"] = _stack(part_masks, "masks")
        return _stack(parts, name)

    def target_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """The (height, width) to which an image of `size` (height, width) is resized."""
        height, width = self.size["height"], self.size["width"]
        if not self.keep_aspect_ratio:
            return height, width
        # The same area for every aspect ratio, so that a long strip costs no more than a square.
        scale = math.sqrt(height * width / (size[0] * size[1]))
        rounded = [max(1, round(side * scale / self.patch_size)) * self.patch_size for side in size]
        return rounded[0], rounded[1]

    def _normalise(self, image: np.ndarray) -> np.ndarray:
        """Normalise an image (H, W, 3) in 0..1, and bring it to (3, H, W)."""
        planes = np.ascontiguousarray(np.moveaxis(image, -1, 0))  # six times as fast as three values at a time
        mean, deviation = (
            np.asarray(values, np.float32)[:, None, None] for values in (self.image_mean, self.image_std)
        )
        return (planes - mean) / deviation


def _two_sides(size: Any) -> tuple[int, int]:
    """The height and width that a tuple, an array or a tensor gives."""
    sides = size.tolist() if isinstance(size, (np.ndarray, Tensor)) else size
    whole = isinstance(sides, Sequence) and all(isinstance(side, Integral) and int(side) >= 1 for side in sides)
    if not whole or len(sides) != 2:
        raise ValueError(f"target_sizes: expected a height and a width >= 1 for each map, got {sides!r}")
    return int(sides[0]), int(sides[1])


def gaussian_smoothing(maps: Tensor, sigma: float) -> Tensor:
    """Smooth maps (B, H, W) with a Gaussian, repeating the border values."""
    reach = int(SMOOTHING_REACH * sigma + 0.5)
    offsets = torch.arange(-reach, reach + 1, device=maps.device, dtype=maps.dtype)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = kernel / kernel.sum()
    return _smooth_rows(_smooth_rows(maps, kernel).mT, kernel).mT


def _smooth_rows(maps: Tensor, kernel: Tensor) -> Tensor:
    """Convolve the rows of maps (B, H, W) with a kernel (2 * reach + 1,).

    Uses matrix products of blocks of the rows, which are several times as fast as a convolution of one channel.
    """
    width, reach = maps.shape[-1], len(kernel) // 2
    block = min(max(SMOOTHING_BLOCK, 2 * reach), width)
    blocks = -(-width // block)
    weights = kernel.new_zeros(block, block + 2 * reach)  # row i has the kernel from column i on
    weights.as_strided((block, len(kernel)), (block + 2 * reach + 1, 1)).copy_(kernel)
    padded = F.pad(maps, (reach, reach + blocks * block - width), mode="replicate")
    return (padded.unfold(-1, block + 2 * reach, block) @ weights.T).flatten(-2)[..., :width]


def _stack(arrays: list[np.ndarray], name: str) -> np.ndarray:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"{name}: expected images that are resized to one size, got {sorted(shapes)}; keep_aspect_ratio needs "
            "one aspect ratio per batch, and every query needs the same number of references"
        )
    return np.stack(arrays)
