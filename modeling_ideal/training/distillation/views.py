"""The views that a student learns from: photographs, random crops of them and rendered textures."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from ...data.images import is_image_file
from ...image_inputs import open_image
from .options import DistillationOptions
from .textures import Generator, render_texture

CROP_AREA = (0.3, 1.0)
"""Smallest and largest fraction of the photograph's area that a crop shows."""
COLOUR_RANGE = (0.6, 1.4)
"""Smallest and largest factor for brightness, contrast and saturation."""


class Purpose(IntEnum):
    """What a random generator is for: generators for different purposes give different numbers."""

    SPLITTING = 1
    FITTING = 2
    ORDERING = 3


def picture_files(folders: Sequence[str]) -> list[Path]:
    """All pictures in some folders and their subfolders, sorted."""
    files: set[Path] = set()
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"images: expected folders of pictures, got {str(folder)!r}, which is not a folder")
        files.update(file for file in folder.rglob("*") if is_image_file(file.name))
    if not files:
        raise ValueError(f"images: expected pictures in {list(folders)}, got none")
    return sorted(files)


@dataclass(frozen=True)
class Views(Sequence):
    """First the photographs unchanged, then crops, then textures; an index always gives the same picture."""

    files: Sequence[Path]
    crops: int
    textures: int
    size: int
    """Side length in pixels of crops and textures."""
    seed: int

    def __len__(self) -> int:
        return len(self.files) + self.crops + self.textures

    def __getitem__(self, index: int) -> Image.Image:  # type: ignore[override]
        """An RGB picture."""
        if not 0 <= index < len(self):
            raise IndexError(f"expected a view from 0 to {len(self) - 1}, got {index}")
        if index < len(self.files):
            return open_image(self.files[index]).convert("RGB")
        generator = np.random.default_rng((self.seed, index))
        if index >= len(self.files) + self.crops:
            return render_texture(generator, self.size)
        file = self.files[int(generator.integers(len(self.files)))]
        return random_crop(generator, open_image(file).convert("RGB"), self.size)


def split_views(options: DistillationOptions) -> tuple[Views, Views]:
    """Views to learn from, and unchanged photographs to validate on; no photograph is in both."""
    files = picture_files(options.images)
    if len(files) < 2:
        raise ValueError(f"images: expected at least 2 pictures, one of them to validate on, got {len(files)}")
    order = np.random.default_rng((options.seed, Purpose.SPLITTING)).permutation(len(files))
    held_out = min(max(1, round(options.held_out * len(files))), len(files) - 1)
    training = sorted(files[index] for index in order[held_out:])
    validation = [files[index] for index in order[:held_out]][: options.validation_images]
    size, seed = options.image_size, options.seed
    return Views(training, options.crops, options.textures, size, seed), Views(validation, 0, 0, size, seed)


def random_crop(generator: Generator, image: Image.Image, size: int) -> Image.Image:
    """A random part of a picture, randomly mirrored, rotated by a multiple of 90° and changed in colour."""
    scale = np.sqrt(generator.uniform(*CROP_AREA))
    width, height = scale * image.width, scale * image.height
    left, upper = generator.uniform(0, image.width - width), generator.uniform(0, image.height - height)
    box = (left, upper, left + width, upper + height)
    image = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    if generator.random() < 0.5:
        image = ImageOps.mirror(image)
    image = image.rotate(90 * int(generator.integers(4)))
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(generator.uniform(*COLOUR_RANGE))
    if generator.random() < 0.3:  # swaps hues, so that the student does not rely on a product's colour
        channels = image.split()
        image = Image.merge("RGB", [channels[channel] for channel in generator.permutation(3)])
    return image
