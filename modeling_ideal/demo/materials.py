"""Rendered images of flat materials and their defects: cloth and wood, each made from a seed."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from .rendering import SIZE, Part, exposed, picture_of, smooth_noise

_SIDE = 2 * SIZE  # drawn at twice the size and reduced, for smooth edges

Draw = Callable[[Image.Image, np.random.Generator], Image.Image]


def render_material(name: str, seed: int, defect: str = "good") -> Part:
    """Render a piece of a material; with or without a defect, the same seed gives the same piece."""
    surface, defects = MATERIALS[name]
    if defect != "good" and defect not in defects:
        raise ValueError(f"expected a defect among {['good', *defects]}, got {defect!r}")
    generator = np.random.default_rng((seed, 2))
    picture = surface(generator)
    mask = None
    if defect != "good":
        painted = defects[defect](picture, np.random.default_rng((seed, 3)))
        changed = np.abs(np.asarray(painted, np.int16) - np.asarray(picture, np.int16)).max(-1) > 12
        mask = Image.fromarray(changed).convert("L").resize((SIZE, SIZE), Image.Resampling.BOX)
        mask = mask.point(lambda value: 255 if value > 96 else 0)
        picture = painted
    return Part(exposed(picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS), generator), mask, defect)


def _cloth(generator: np.random.Generator) -> Image.Image:
    """Blue twill: diagonal ribs of threads that are not all alike."""
    rows, columns = np.mgrid[0:_SIDE, 0:_SIDE].astype(np.float32)
    angle = generator.normal(0, 0.01)
    across = columns * np.cos(angle) + rows * np.sin(angle) + generator.uniform(0, 100)
    down = rows * np.cos(angle) - columns * np.sin(angle) + generator.uniform(0, 100)
    ribs = np.sin((across + down) * 2 * np.pi / 26)
    threads = np.sin(across * 2 * np.pi / 13) * np.sin(down * 2 * np.pi / 13)
    uneven = np.repeat(generator.normal(0, 1, _SIDE // 13 + 1), 13)[:_SIDE][None, :] * 2.5
    grey = 96 + 17 * ribs + 13 * threads + uneven + smooth_noise(generator, _SIDE, 3) * 6
    grey = grey + smooth_noise(generator, _SIDE, 160) * 4
    return picture_of(np.stack([grey * 0.72, grey * 0.86, grey * 1.22], -1))


def _wood(generator: np.random.Generator) -> Image.Image:
    """A planed board: grain along the board, with pores."""
    rows, columns = np.mgrid[0:_SIDE, 0:_SIDE].astype(np.float32)
    bend = smooth_noise(generator, _SIDE, 220) * 22 + 14 * np.sin(columns / 260 + generator.uniform(0, 6))
    rings = np.sin((rows + bend + generator.uniform(0, 200)) * 2 * np.pi / 58)
    fine = np.asarray(
        Image.fromarray(generator.normal(0, 1, (_SIDE // 2, 28)).astype(np.float32)).resize((_SIDE, _SIDE))
    )
    grey = 168 + 15 * rings + 7 * fine + smooth_noise(generator, _SIDE, 3) * 3
    return picture_of(np.stack([grey * 1.08, grey * 0.84, grey * 0.58], -1))


def _place(generator: np.random.Generator) -> tuple[float, float]:
    """A point well within the picture."""
    return generator.uniform(0.22, 0.78) * _SIDE, generator.uniform(0.22, 0.78) * _SIDE


def _blotch(generator: np.random.Generator, radius: float, blur: float) -> Image.Image:
    """A shape with an uneven edge, as a mask."""
    centre = _place(generator)
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    waves = sum(generator.normal(0, 0.12) * np.cos(k * angles + generator.uniform(0, 6)) for k in (1, 2, 3, 5))
    reach = radius * (1 + waves)
    points = list(zip(centre[0] + reach * np.cos(angles), centre[1] + reach * np.sin(angles), strict=True))
    shape = Image.new("L", (_SIDE, _SIDE))
    ImageDraw.Draw(shape).polygon(points, fill=255)
    return shape.filter(ImageFilter.GaussianBlur(blur))


def _stain(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A liquid that has dried: darker, and darkest at its edge."""
    shape = np.asarray(_blotch(generator, generator.uniform(55, 85), 5), np.float32)[..., None] / 255
    edge = 4 * shape * (1 - shape)
    tint = np.array([0.62, 0.5, 0.42]) * (1 - 0.35 * edge)
    return picture_of(np.asarray(picture, np.float32) * (1 - shape + shape * tint))


def _hole(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A hole with frayed threads around it."""
    shape = _blotch(generator, generator.uniform(26, 42), 2)
    torn = picture.copy()
    draw = ImageDraw.Draw(torn)
    left, top, right, bottom = shape.getbbox() or (0, 0, 1, 1)
    torn.paste((14, 14, 18), mask=shape)
    for _ in range(26):
        start = (generator.uniform(left, right), generator.choice([top, bottom]) + generator.normal(0, 6))
        end = (start[0] + generator.normal(0, 16), start[1] + generator.normal(0, 20))
        draw.line([start, end], fill=(118, 138, 178), width=3)
    return torn


def _thread(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A loose thread that lies on the cloth, with its shadow."""
    x, y = _place(generator)
    turn, bend = generator.uniform(0, 2 * np.pi), generator.normal(0, 0.012)
    points = []
    for _ in range(60):
        points.append((x, y))
        x, y, turn = x + 5 * np.cos(turn), y + 5 * np.sin(turn), turn + bend + generator.normal(0, 0.06)
    painted = picture.copy()
    shadow = Image.new("L", picture.size)
    ImageDraw.Draw(shadow).line([(across + 5, down + 6) for across, down in points], fill=150, width=7, joint="curve")
    painted.paste((20, 24, 40), mask=shadow.filter(ImageFilter.GaussianBlur(3)))
    ImageDraw.Draw(painted).line(points, fill=(205, 212, 226), width=6, joint="curve")
    return painted


def _crack(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A split along the grain, wide in the middle."""
    x, y = _place(generator)
    length = generator.uniform(220, 320)
    steps = np.linspace(-1, 1, 40)
    middle = y + np.cumsum(generator.normal(0, 2.0, 40))
    upper = [(x + length / 2 * step, down - 8 * (1 - step**2)) for step, down in zip(steps, middle, strict=True)]
    lower = [(x + length / 2 * step, down + 8 * (1 - step**2)) for step, down in zip(steps, middle, strict=True)]
    shape = Image.new("L", picture.size)
    ImageDraw.Draw(shape).polygon([*upper, *lower[::-1]], fill=235)
    painted = picture.copy()
    painted.paste((38, 22, 12), mask=shape.filter(ImageFilter.GaussianBlur(1.5)))
    return painted


def _worm_holes(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A few small round holes close together."""
    centre = _place(generator)
    painted = picture.copy()
    draw = ImageDraw.Draw(painted)
    for _ in range(4):
        across, down = (value + generator.normal(0, 34) for value in centre)
        radius = generator.uniform(8, 13)
        draw.ellipse(
            [across - radius - 3, down - radius - 3, across + radius + 3, down + radius + 3], fill=(206, 170, 120)
        )
        draw.ellipse([across - radius, down - radius, across + radius, down + radius], fill=(30, 18, 10))
    return painted


MATERIALS: dict[str, tuple[Callable[[np.random.Generator], Image.Image], dict[str, Draw]]] = {
    "cloth": (_cloth, {"hole": _hole, "stain": _stain, "loose thread": _thread}),
    "wood": (_wood, {"crack": _crack, "stain": _stain, "worm holes": _worm_holes}),
}
