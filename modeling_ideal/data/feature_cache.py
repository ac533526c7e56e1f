"""The feature cache: every image is encoded once, and read back memory-mapped.

    DIRECTORY/<encoder>/<two digits>/<image>.safetensors          features (h, w, C) float16, pixel_size (2,)
    DIRECTORY/<encoder>/<two digits>/<image>-<mask>.safetensors   patch_mask (h, w), pixel_mask (H, W)

One file an image, because a file that is renamed into place is whole: a killed run loses what it was encoding
and nothing else, and two processes may fill one directory. The names are hashes of the encoder's fingerprint,
of the image and of its mask: a changed backbone, preprocessing, image or mask has another name, and a stale
entry cannot be read. A picture that occurs several times is stored once.
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

_FORMAT = "features-1"  # another way of storing needs another name, or old files would be read as new ones


class Encoder(Protocol):
    """What turns pictures into features: a frozen backbone with its preprocessing."""

    @property
    def fingerprint(self) -> str:
        """Differs whenever the features of some image would: backbone weights, stage, preprocessing."""

    def __call__(self, images: list[Image.Image]) -> Tensor:
        """(n, h, w, C) patch features of n pictures."""

    def prepare_mask(self, mask: Image.Image) -> Tensor:
        """(H, W) mask, non-zero = anomalous, of the pixels that the encoder sees of an image of that size."""


@dataclass(frozen=True)
class FeatureCache:
    """The features of records, by their indices; opened by `encode_records`, light to send to a worker."""

    directory: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    contents: tuple[str, ...]
    mask_keys: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def has_mask(self, index: int) -> bool:
        """Whether the masks can be asked for: they cannot for an anomalous record without one."""
        return self.labels[index] == 0 or self.mask_keys[index] is not None

    def features(self, indices: Sequence[int], out: Tensor | None = None) -> Tensor:
        """(n, h, w, C) float16 patch features; into `out`, if given, which spares the cost of new memory."""
        return _stack([self.read(index, self.features_file(index), "features") for index in indices], out)

    def patch_masks(self, indices: Sequence[int]) -> Tensor:
        """(n, h, w) of bool: True where any pixel of the patch is anomalous; False for normal records."""
        return _stack([self._mask(index, "patch_mask") for index in indices])

    def pixel_masks(self, indices: Sequence[int]) -> Tensor:
        """(n, H, W) of bool, of the pixels that the encoder sees; False for normal records."""
        return _stack([self._mask(index, "pixel_mask") for index in indices])

    def _mask(self, index: int, name: str) -> Tensor:
        mask_file = self.mask_file(index)
        if mask_file is not None:
            return self.read(index, mask_file, name)
        if self.labels[index]:
            raise ValueError(f"{self.paths[index]}: expected a mask, but this anomalous record has none")
        return torch.zeros(self.sizes(index)[name], dtype=torch.bool)

    def sizes(self, index: int) -> dict[str, tuple[int, ...]]:
        """The shapes that the masks of a record have, with or without a mask."""
        file = self.features_file(index)
        patches = self.read(index, file, "features").shape[:2]
        return {
            "patch_mask": tuple(patches),
            "pixel_mask": tuple(self.read(index, file, "pixel_size").tolist()),
        }

    def features_file(self, index: int) -> Path:
        """Where the features of a record are, or will be."""
        return self.directory / self.contents[index][:2] / f"{self.contents[index]}.safetensors"

    def mask_file(self, index: int) -> Path | None:
        """Where the masks of a record are, or will be; None for a record without."""
        if self.labels[index] == 0 or self.mask_keys[index] is None:
            return None
        features_file = self.features_file(index)
        return features_file.with_name(f"{features_file.stem}-{self.mask_keys[index]}.safetensors")

    def read(self, index: int, file: Path, name: str) -> Tensor:
        """A tensor of a record's file, memory-mapped."""
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
    """Encode the records that the cache does not hold yet, and open the cache.

    Under `accelerate launch` the processes share the work and all return when it is done.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    if batch_size < 1:
        raise ValueError(f"expected a batch size of at least 1, got {batch_size}")
    # On a CPU the processes find each other by this flag alone; `Accelerator` reads it, `PartialState` does not.
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
    with state.main_process_first():  # the others find the hashes that the first has left in datasets' cache
        contents = content_hashes(records)
    encoder_key = hashlib.blake2b(f"{_FORMAT} {encoder.fingerprint}".encode(), digest_size=16).hexdigest()
    cache = FeatureCache(
        Path(directory).expanduser() / encoder_key,
        paths=tuple(records["path"]),
        labels=tuple(records["label"]),
        contents=tuple(contents),
        mask_keys=tuple(_mask_keys(records)),
    )
    if state.is_main_process:
        remove_abandoned(cache.directory)
    # A share of all pictures, of which each process then skips what is there. Shares of the missing ones
    # would no longer fit together once a process has written something before another has looked.
    distinct = list({content: index for index, content in enumerate(contents)}.values())
    share = distinct[state.process_index :: state.num_processes]
    _encode_images(records, encoder, cache, share, batch_size, progress and state.is_local_main_process)
    _prepare_masks(records, encoder, cache, {contents[index] for index in share})
    state.wait_for_everyone()
    return cache


def _mask_keys(records: datasets.Dataset) -> list[str | None]:
    """A hash of the bytes of every record's mask file, None where there is no mask."""
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
            # Another process may have come first since.
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
        raise ValueError(f"expected an encoder that gives ({len(images)}, h, w, C), got {tuple(features.shape)}")
    halves = features.to("cpu", torch.float16)
    for index, image, half in zip(indices, images, halves, strict=True):
        if not torch.isfinite(half).all():
            raise ValueError(f"{cache.paths[index]}: expected features within float16, got infinite or NaN ones")
        pixel_size = encoder.prepare_mask(Image.new("L", image.size)).shape
        file = cache.features_file(index)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, save({"features": half.contiguous(), "pixel_size": torch.tensor(pixel_size)}))


def _prepare_masks(records: datasets.Dataset, encoder: Encoder, cache: FeatureCache, contents: set[str]) -> None:
    """Store the masks that are missing beside the features of these contents."""
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
    # By NumPy: torch would call its threads together, which gains nothing here and costs much on a busy machine.
    arrays = [tensor.numpy() for tensor in tensors]
    if out is None:
        return torch.from_numpy(np.stack(arrays))
    np.stack(arrays, out=out.numpy())
    return out
