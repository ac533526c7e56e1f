"""Rendered textures, so that a student generalises beyond the products in its photographs."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Generator = np.random.Generator


def render_texture(generator: Generator, size: int) -> Image.Image:
    """A surface of `size` x `size` pixels in two random colours, often with a scratch or a stain on it."""
    surface = SURFACES[generator.integers(len(SURFACES))](generator, size)  # (size, size) in 0..1
    dark, light = generator.uniform(0, 255, (2, 3))
    pixels = dark + surface[..., None] * (light - dark)
    pixels += generator.normal(0, generator.uniform(0, 8), pixels.shape)
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    for mark in (_scratch, _stain):
        if generator.random() < 0.4:
            image = mark(generator, image)
    return image


def _noise(generator: Generator, size: int) -> np.ndarray:
    """Clouds: noise at several scales, whose strength changes from scale to scale by a random factor."""
    total = np.zeros((size, size))
    persistence = generator.uniform(0.4, 1.6)
    for octave in range(1, 8):
        cells = generator.random((2**octave + 1, 2**octave + 1)).astype(np.float32)
        total += persistence**-octave * np.asarray(
            Image.fromarray(cells).resize((size, size), Image.Resampling.BICUBIC)
        )
    return _stretched(total)


def _stripes(generator: Generator, size: int) -> np.ndarray:
    along = _coordinate(generator, size)
    wave = np.sin(2 * np.pi * along * generator.uniform(3, 40) + 3 * generator.random() * _noise(generator, size))
    return _stretched(np.tanh(wave * generator.uniform(0.5, 5)))


def _gradient(generator: Generator, size: int) -> np.ndarray:
    return _stretched(_coordinate(generator, size) + generator.uniform(0, 0.5) * _noise(generator, size))


def _grid(generator: Generator, size: int) -> np.ndarray:
    """Wires in two random directions."""
    wires = [np.cos(2 * np.pi * _coordinate(generator, size) * generator.uniform(4, 30)) for _ in range(2)]
    return _stretched(np.maximum(*wires) ** 3)


def _grains(generator: Generator, size: int) -> np.ndarray:
    """Grains: clouds with a soft threshold."""
    steepness = generator.uniform(5, 40)
    return 1 / (1 + np.exp(-steepness * (_noise(generator, size) - generator.uniform(0.3, 0.7))))


SURFACES: tuple[Callable[[Generator, int], np.ndarray], ...] = (_noise, _stripes, _gradient, _grid, _grains)


def _scratch(generator: Generator, image: Image.Image) -> Image.Image:
    """Draw a thin, crooked line."""
    steps = generator.normal(0, image.width / 12, (generator.integers(2, 6), 2))
    points = generator.uniform(0, image.width, 2) + np.cumsum(steps + steps.mean(0), axis=0)
    ImageDraw.Draw(image).line([tuple(point) for point in points], _colour(generator), int(generator.integers(1, 8)))
    return image


def _stain(generator: Generator, image: Image.Image) -> Image.Image:
    """Draw a spot with a soft edge."""
    mask = Image.new("L", image.size)
    x, y = generator.uniform(0, image.width, 2)
    reach_x, reach_y = generator.uniform(image.width / 60, image.width / 8, 2)
    ImageDraw.Draw(mask).ellipse(
        (x - reach_x, y - reach_y, x + reach_x, y + reach_y), int(generator.integers(80, 256))
    )
    mask = mask.filter(ImageFilter.GaussianBlur(generator.uniform(0, 4)))
    return Image.composite(Image.new("RGB", image.size, _colour(generator)), image, mask)


def _colour(generator: Generator) -> tuple[int, int, int]:
    red, green, blue = generator.integers(0, 256, 3).tolist()
    return red, green, blue


def _coordinate(generator: Generator, size: int) -> np.ndarray:
    """(size, size): position along a random direction, in units of the picture's side."""
    angle = generator.uniform(0, 2 * np.pi)
    rows, columns = np.mgrid[:size, :size] / size
    return np.cos(angle) * columns + np.sin(angle) * rows


def _stretched(values: np.ndarray) -> np.ndarray:
    """Rescale to the range 0..1."""
    return (values - values.min()) / max(float(np.ptp(values)), 1e-6)
