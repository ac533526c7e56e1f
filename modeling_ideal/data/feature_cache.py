"""The feature cache: every image is encoded once, and its features are read back memory-mapped.

    DIRECTORY/<encoder>/<two digits>/<image>.safetensors          features (h, w, C) float16, pixel_size (2,)
    DIRECTORY/<encoder>/<two digits>/<image>-<mask>.safetensors   patch_mask (h, w), pixel_mask (H, W)

Each image has its own file, which is renamed into place once it is complete: a killed run loses only what it was
encoding, and several processes can fill one directory. The names are hashes of the encoder's fingerprint, the image
and its mask: if the backbone, the preprocessing, the image or the mask changes, so does the name, and a stale entry
is never read. A picture that occurs several times is stored once.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import datasets
import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from tqdm import tqdm

from ..masks import patch_masks
from ..writing.files import remove_abandoned, write_atomically
from .catalogue import content_hashes
from .images import content_hash

_FORMAT = "features-1"  # to be changed with the file format, or old files would be read as new ones


class Encoder(Protocol):
    """A frozen backbone with its preprocessing: turns images into patch features."""

    @property
    def fingerprint(self) -> str:
        """A hash that changes with the features: of the backbone's weights, its stage and the preprocessing."""

    def __call__(self, images: list[Image.Image]) -> Tensor:
        """Patch features (n, h, w, C) of n images."""

    def prepare_mask(self, mask: Image.Image) -> Tensor:
        """Resize a mask as the encoder resizes its image: (H, W), non-zero = anomalous."""


@dataclass(frozen=True)
class FeatureCache:
    """Cached features and masks of records, by index; made by `encode_records`, cheap to send to a worker."""

    directory: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    contents: tuple[str, ...]
    mask_keys: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def has_mask(self, index: int) -> bool:
        """Whether a record has masks: always for a normal record, for an anomalous one if it has a mask file."""
        return self.labels[index] == 0 or self.mask_keys[index] is not None

    def features(self, indices: Sequence[int], out: Tensor | None = None) -> Tensor:
        """Patch features (n, h, w, C), float16; written to `out`, if given, to avoid allocating memory."""
        return _stack([self.read(index, self.features_file(index), "features") for index in indices], out)

    def patch_masks(self, indices: Sequence[int]) -> Tensor:
        """Patch masks (n, h, w), bool: a patch with an anomalous pixel is True; all False for normal records."""
        return _stack([self._mask(index, "patch_mask") for index in indices])

    def pixel_masks(self, indices: Sequence[int]) -> Tensor:
        """Pixel masks (n, H, W), bool, at the size the encoder sees; all False for normal records."""
        return _stack([self._mask(index, "pixel_mask") for index in indices])

    def _mask(self, index: int, name: str) -> Tensor:
        mask_file = self.mask_file(index)
        if mask_file is not None:
            return self.read(index, mask_file, name)
        if self.labels[index]:
            raise ValueError(f"{self.paths[index]}: expected a mask, but this anomalous record has none")
        return torch.zeros(self.sizes(index)[name], dtype=torch.bool)

    def sizes(self, index: int) -> dict[str, tuple[int, ...]]:
        """The shapes of a record's masks, whether or not it has a mask file."""
        file = self.features_file(index)
        patches = self.read(index, file, "features").shape[:2]
        return {
            "patch_mask": tuple(patches),
            "pixel_mask": tuple(self.read(index, file, "pixel_size").tolist()),
        }

    def features_file(self, index: int) -> Path:
        """The file for the features of a record, which may not exist yet."""
        return self.directory / self.contents[index][:2] / f"{self.contents[index]}.safetensors"

    def mask_file(self, index: int) -> Path | None:
        """The file for the masks of a record, which may not exist yet; None if the record has no mask."""
        if self.labels[index] == 0 or self.mask_keys[index] is None:
            return None
        features_file = self.features_file(index)
        return features_file.with_name(f"{features_file.stem}-{self.mask_keys[index]}.safetensors")

    def read(self, index: int, file: Path, name: str) -> Tensor:
        """Read one tensor from the file of a record, memory-mapped."""
        try:
            with safe_open(file, framework="pt") as tensors:
                return tensors.get_tensor(name)
        except FileNotFoundError as error:
            raise ValueError(f"{self.paths[index]}: not in the cache {self.directory}; run encode_records") from error
        except SafetensorError as error:
            raise ValueError(
                f"{file}: expected the cached {name} of {self.paths[index]}, got {error}; "
                "delete the file and run encode_records"
            ) from error


def encode_records(
    records: datasets.Dataset,
    encoder: Encoder,
    directory: str | Path,
    batch_size: int = 8,
    progress: bool = True,
) -> FeatureCache:
    """Encode the records that are not in the cache yet, and open the cache.

    Under `accelerate launch` the processes share the work, and all return when it is done.

    Args:
        records: from `load_records`.
        encoder: the backbone with its preprocessing.
        directory: of the cache; created if it does not exist.
        batch_size: number of images to encode at a time.
        progress: whether to show a progress bar.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    if batch_size < 1:
        raise ValueError(f"expected a batch size of at least 1, got {batch_size}")
    # On a CPU the processes find each other only with this flag; `Accelerator` reads it, `PartialState` does not.
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
    with state.main_process_first():  # the others then find the hashes in the cache of datasets
        contents = content_hashes(records)
    encoder_key = hashlib.blake2b(f"{_FORMAT} {encoder.fingerprint}".encode(), digest_size=16).hexdigest()
    cache = FeatureCache(
        Path(directory).expanduser() / encoder_key,
        paths=tuple(records["path"]),
        labels=tuple(records["label"]),
        contents=tuple(contents),
        mask_keys=tuple(mask_keys(records)),
    )
    if state.is_main_process:
        remove_abandoned(cache.directory)
    # Each process takes a share of all pictures and skips those in the cache. Shares of the missing pictures alone
    # would not match if one process had written some before another looked.
    distinct = list({content: index for index, content in enumerate(contents)}.values())
    share = distinct[state.process_index :: state.num_processes]
    _encode_images(records, encoder, cache, share, batch_size, progress and state.is_local_main_process)
    _prepare_masks(records, encoder, cache, {contents[index] for index in share})
    state.wait_for_everyone()
    return cache


def mask_keys(records: datasets.Dataset) -> list[str | None]:
    """Hash the bytes of every record's mask file; None for a record without a mask."""
    keys: list[str | None] = []
    for row in records.select_columns(["mask"]).cast_column("mask", datasets.Image(decode=False)):
        if row["mask"] is None:
            keys.append(None)
        else:
            content = row["mask"]["bytes"] or Path(row["mask"]["path"]).read_bytes()
            keys.append(hashlib.blake2b(content, digest_size=16).hexdigest())
    return keys


def _encode_images(
    records: datasets.Dataset,
    encoder: Encoder,
    cache: FeatureCache,
    share: Sequence[int],
    batch_size: int,
    progress: bool,
) -> None:
    images = records.select_columns(["image"])
    missing = [index for index in share if not cache.features_file(index).exists()]
    with tqdm(
        total=len(share),
        initial=len(share) - len(missing),
        desc="Encoding",
        unit="image",
        disable=not progress,
    ) as bar:
        for start in range(0, len(missing), batch_size):
            batch = missing[start : start + batch_size]
            # Another run may have encoded some in the meantime.
            batch_missing = [index for index in batch if not cache.features_file(index).exists()]
            if batch_missing:
                _encode_batch([images[index]["image"] for index in batch_missing], encoder, cache, batch_missing)
            bar.update(len(batch))


def _encode_batch(images: list[Image.Image], encoder: Encoder, cache: FeatureCache, indices: Sequence[int]) -> None:
    for index, image in zip(indices, images, strict=True):
        if content_hash(image) != cache.contents[index]:
            raise ValueError(f"{cache.paths[index]}: the image has changed since the records were loaded")
    with torch.no_grad():
        features = encoder(images)
    if features.ndim != 4 or len(features) != len(images):
        raise ValueError(f"expected an encoder that returns ({len(images)}, h, w, C), got {tuple(features.shape)}")
    halves = features.to("cpu", torch.float16)
    for index, image, half in zip(indices, images, halves, strict=True):
        if not torch.isfinite(half).all():
            raise ValueError(
                f"{cache.paths[index]}: expected features within the range of float16, got infinity or NaN"
            )
        pixel_size = encoder.prepare_mask(Image.new("L", image.size)).shape
        file = cache.features_file(index)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, save({"features": half.contiguous(), "pixel_size": torch.tensor(pixel_size)}))


def _prepare_masks(records: datasets.Dataset, encoder: Encoder, cache: FeatureCache, contents: set[str]) -> None:
    """Store the missing masks of the images with these content hashes."""
    masks = records.select_columns(["mask"])
    for index in range(len(cache)):
        file = cache.mask_file(index)
        if file is None or cache.contents[index] not in contents or file.exists():
            continue
        pixel_mask = encoder.prepare_mask(masks[index]["mask"]) != 0
        rows, columns = (sizes := cache.sizes(index))["patch_mask"]
        if tuple(pixel_mask.shape) != sizes["pixel_mask"]:
            raise ValueError(
                f"{cache.paths[index]}: expected a mask of {sizes['pixel_mask']} pixels, as its image has, "
                f"got {tuple(pixel_mask.shape)}"
            )
        height, width = pixel_mask.shape
        patches = patch_masks(pixel_mask, (height // rows, width // columns)).cpu()
        write_atomically(file, save({"patch_mask": patches, "pixel_mask": pixel_mask.cpu().contiguous()}))


def _stack(tensors: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) != 1:
        raise ValueError(f"expected at least one image, all of one size, to stack; got shapes {sorted(shapes)}")
    # With NumPy: torch would start its threads, which gains nothing here and costs much on a busy machine.
    arrays = [tensor.numpy() for tensor in tensors]
    if out is None:
        return torch.from_numpy(np.stack(arrays))
    np.stack(arrays, out=out.numpy())
    return out
