"""Rendered images of parts and their defects: steel flanges on a conveyor belt, each made from a seed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 448
_OVERSAMPLING = 2  # drawn at twice the size and reduced, for smooth edges
_HOLES = 6


@dataclass(frozen=True)
class Part:
    """A rendered image, with the mask of its defect (or None) and the name of the defect (or `"good"`)."""

    image: Image.Image
    mask: Image.Image | None
    defect: str


@dataclass(frozen=True)
class _Pose:
    """Position of the flange, in pixels of the oversampled image, and its rotation, in radians."""

    centre: tuple[float, float]
    radius: float
    angle: float

    def at(self, distance: float, angle: float) -> tuple[float, float]:
        """The point at a distance, as a share of the radius, and an angle, both relative to the flange."""
        turned = self.angle + angle
        return (
            self.centre[0] + distance * self.radius * np.cos(turned),
            self.centre[1] + distance * self.radius * np.sin(turned),
        )


def render_part(seed: int, defect: str = "good") -> Part:
    """Render one flange; with or without a defect, the same seed gives the same flange."""
    if defect != "good" and defect not in DEFECTS:
        raise ValueError(f"expected a defect among {['good', *DEFECTS]}, got {defect!r}")
    generator = np.random.default_rng((seed, 0))
    side = SIZE * _OVERSAMPLING
    pose = _Pose(
        centre=(side / 2 + generator.normal(0, 8), side / 2 + generator.normal(0, 8)),
        radius=0.37 * side * generator.normal(1, 0.008),
        angle=generator.normal(0, 0.06),
    )
    picture = _flange(_belt(generator, side), pose, generator)
    mask = None
    if defect != "good":
        painted = DEFECTS[defect](picture, pose, np.random.default_rng((seed, 1)))
        changed = np.abs(np.asarray(painted, np.int16) - np.asarray(picture, np.int16)).max(-1) > 12
        mask = Image.fromarray(changed).convert("L").resize((SIZE, SIZE), Image.Resampling.BOX)
        mask = mask.point(lambda value: 255 if value > 96 else 0)
        picture = painted
    picture = picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    return Part(exposed(picture, generator), mask, defect)


def _belt(generator: np.random.Generator, side: int) -> Image.Image:
    """Dark rubber with a woven grain."""
    rows, columns = np.mgrid[0:side, 0:side]
    weave = 5 * np.sin(rows / 7) * np.sin(columns / 7)
    grain = smooth_noise(generator, side, 2) * 7 + smooth_noise(generator, side, 64) * 5
    grey = 52 + weave + grain
    return picture_of(np.stack([grey, grey * 1.02, grey * 1.08], -1))


def _flange(belt: Image.Image, pose: _Pose, generator: np.random.Generator) -> Image.Image:
    """A turned steel ring with bolt holes, and its shadow."""
    side = belt.width
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32)
    across, down = columns - pose.centre[0], rows - pose.centre[1]
    distance = np.hypot(across, down) / pose.radius
    direction = np.arctan2(down, across)
    # A lathe leaves rings, which reflect a lamp in two opposite sectors.
    rings = np.interp(distance, np.linspace(0, 1.1, 400), generator.normal(0, 1, 400)) * 5
    fans = 26 * np.cos(2 * (direction - 0.9))
    bevel = 45 * np.exp(-(((distance - 0.965) / 0.018) ** 2)) - 30 * np.exp(-(((distance - 0.44) / 0.02) ** 2))
    grey = 158 + rings + fans + bevel + smooth_noise(generator, side, 2) * 4
    steel = picture_of(np.stack([grey, grey, grey * 1.03], -1))
    shape = Image.new("L", belt.size)
    draw = ImageDraw.Draw(shape)
    _disc(draw, pose.centre, pose.radius, 255)
    _disc(draw, pose.centre, 0.42 * pose.radius, 0)
    for hole in range(_HOLES):
        _disc(draw, pose.at(0.7, 2 * np.pi * hole / _HOLES), 0.09 * pose.radius, 0)
    shadow = Image.new("L", belt.size)
    shadow.paste(shape.point(lambda value: value * 0.6), (14, 18))
    picture = belt.copy()
    picture.paste(0, mask=shadow.filter(ImageFilter.GaussianBlur(10)))
    picture.paste(steel, mask=shape)
    return picture


def _scratch(picture: Image.Image, pose: _Pose, generator: np.random.Generator) -> Image.Image:
    """A bright line with a dark edge across the face."""
    angle = generator.uniform(0, 2 * np.pi)
    ends = [
        (generator.uniform(0.5, 0.58), angle),
        (generator.uniform(0.86, 0.93), angle + generator.uniform(0.3, 0.6)),
    ]
    middle = (np.mean([end[0] for end in ends]) + 0.05, np.mean([end[1] for end in ends]))
    points = [pose.at(*point) for point in (ends[0], middle, ends[1])]
    painted = picture.copy()
    draw = ImageDraw.Draw(painted)
    draw.line([(across + 3, down + 3) for across, down in points], fill=(70, 70, 72), width=6, joint="curve")
    draw.line(points, fill=(236, 238, 240), width=5, joint="curve")
    return painted


def _dent(picture: Image.Image, pose: _Pose, generator: np.random.Generator) -> Image.Image:
    """A hollow: dark towards the lamp, bright away from it."""
    place = pose.at(generator.uniform(0.82, 0.88), generator.uniform(0, 2 * np.pi))
    radius = generator.uniform(0.06, 0.09) * pose.radius
    dark, bright = (Image.new("L", picture.size) for _ in range(2))
    _disc(ImageDraw.Draw(dark), (place[0] - 0.3 * radius, place[1] - 0.3 * radius), radius, 210)
    _disc(ImageDraw.Draw(bright), (place[0] + 0.45 * radius, place[1] + 0.45 * radius), 0.6 * radius, 190)
    painted = picture.copy()
    painted.paste((58, 58, 62), mask=dark.filter(ImageFilter.GaussianBlur(6)))
    painted.paste((240, 240, 240), mask=bright.filter(ImageFilter.GaussianBlur(5)))
    return painted


def _rust(picture: Image.Image, pose: _Pose, generator: np.random.Generator) -> Image.Image:
    """A brown stain with a ragged edge."""
    place = pose.at(generator.uniform(0.55, 0.85), generator.uniform(0, 2 * np.pi))
    stain = Image.new("L", picture.size)
    draw = ImageDraw.Draw(stain)
    for _ in range(14):
        offset = generator.normal(0, 0.05 * pose.radius, 2)
        centre = (place[0] + offset[0], place[1] + offset[1])
        _disc(draw, centre, generator.uniform(0.02, 0.06) * pose.radius, 235)
    painted = picture.copy()
    painted.paste((112, 62, 34), mask=stain.filter(ImageFilter.GaussianBlur(4)))
    return painted


def _missing_hole(picture: Image.Image, pose: _Pose, generator: np.random.Generator) -> Image.Image:
    """A bolt hole that was not drilled: plain steel with a centre mark."""
    hole = 2 * np.pi * generator.integers(_HOLES) / _HOLES
    face = pose.at(0.7, hole + np.pi / _HOLES)  # between two holes
    place = pose.at(0.7, hole)
    radius = round(0.12 * pose.radius)
    box = [round(face[0] - radius), round(face[1] - radius), round(face[0] + radius), round(face[1] + radius)]
    patch = picture.crop((box[0], box[1], box[2], box[3]))
    shape = Image.new("L", patch.size)
    _disc(ImageDraw.Draw(shape), (radius, radius), 0.11 * pose.radius, 255)
    painted = picture.copy()
    corner = (round(place[0] - radius), round(place[1] - radius))
    painted.paste(patch, corner, mask=shape.filter(ImageFilter.GaussianBlur(3)))
    _disc(ImageDraw.Draw(painted), place, 5, (80, 80, 84))
    return painted


DEFECTS: dict[str, Callable[[Image.Image, _Pose, np.random.Generator], Image.Image]] = {
    "scratch": _scratch,
    "dent": _dent,
    "rust": _rust,
    "missing hole": _missing_hole,
}


def exposed(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Simulate a camera: a slightly different exposure each time, and sensor noise."""
    values = np.asarray(picture, np.float32) * generator.normal(1, 0.03)
    return picture_of(values + generator.normal(0, 2.5, values.shape))


def smooth_noise(generator: np.random.Generator, side: int, grain: int) -> np.ndarray:
    """Smooth noise (side, side) of about unit size, with a grain of `grain` pixels."""
    coarse = Image.fromarray(generator.normal(0, 1, (side // grain + 1,) * 2).astype(np.float32))
    return np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC))


def picture_of(values: np.ndarray) -> Image.Image:
    """A picture of values (H, W, 3), cut off at 0 and 255."""
    return Image.fromarray(values.clip(0, 255).round().astype(np.uint8))


def _disc(draw: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float, fill: int | tuple) -> None:
    draw.ellipse([centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius], fill=fill)
