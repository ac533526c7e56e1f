"""The pictures that a student learns from: photographs, changed photographs and rendered textures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from ...data.images import is_image_file
from ...image_inputs import open_image
from .textures import Generator, render_texture

CROP_AREA = (0.3, 1.0)
"""Smallest and largest share of the photograph that a crop shows."""
COLOUR_RANGE = (0.6, 1.4)
"""Of brightness, contrast and saturation, as factors."""


def picture_files(folders: Sequence[str]) -> list[Path]:
    """All pictures below some folders, sorted."""
    files: set[Path] = set()
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"images: expected folders of pictures, got {str(folder)!r}, which is none")
        files.update(file for file in folder.rglob("*") if is_image_file(file.name))
    if not files:
        raise ValueError(f"images: expected pictures below {list(folders)}, got none")
    return sorted(files)


@dataclass(frozen=True)
class Views(Sequence):
    """First every photograph as it is, then crops, then textures; the same index always shows the same picture."""

    files: Sequence[Path]
    crops: int
    textures: int
    size: int
    """Side in pixels of crops and textures."""
    seed: int

    def __len__(self) -> int:
        return len(self.files) + self.crops + self.textures

    def __getitem__(self, index: int) -> Image.Image:  # type: ignore[override]
        """One picture: RGB."""
        if not 0 <= index < len(self):
            raise IndexError(f"expected a view from 0 to {len(self) - 1}, got {index}")
        if index < len(self.files):
            return open_image(self.files[index]).convert("RGB")
        generator = np.random.default_rng((self.seed, index))
        if index >= len(self.files) + self.crops:
            return render_texture(generator, self.size)
        file = self.files[int(generator.integers(len(self.files)))]
        return random_crop(generator, open_image(file).convert("RGB"), self.size)


def random_crop(generator: Generator, image: Image.Image, size: int) -> Image.Image:
    """A part of a picture at a random scale, mirrored or not, turned by a right angle, in other colours."""
    share = np.sqrt(generator.uniform(*CROP_AREA))
    width, height = share * image.width, share * image.height
    left, upper = generator.uniform(0, image.width - width), generator.uniform(0, image.height - height)
    box = (left, upper, left + width, upper + height)
    image = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    if generator.random() < 0.5:
        image = ImageOps.mirror(image)
    image = image.rotate(90 * int(generator.integers(4)))
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(generator.uniform(*COLOUR_RANGE))
    if generator.random() < 0.3:  # another hue, so that the student does not tell products by their colour
        channels = image.split()
        image = Image.merge("RGB", [channels[channel] for channel in generator.permutation(3)])
    return image
