"""Checks of the JSON of a request to the endpoint's handler: what may be in it, and how much."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_IMAGES = 64
MOST_REFERENCES = 64  # normal and abnormal together
MOST_SHAPES = 100  # boxes and polygons of a mask
MOST_POINTS = 1000  # of a mask
FARTHEST = 100_000  # the largest coordinate, in pixels
MOST_LETTERS = 100  # in the name of a type
MOST_SMOOTHING = 32  # pixels of the model's input
MOST_AT_ONCE = 16  # images in a batch
SHOWN = 40  # characters of a request that an error repeats

KEYS = ("inputs", "references", "parameters")
PARTS = ("normal", "abnormal", "masks", "types", "false_alarm", "max_patches")

Rule = tuple[str, Callable[[Any], bool]]  # what is expected, in words, and whether a value is that


def is_number(value: Any) -> bool:
    """Whether a value is a number, which True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# The pipeline's arguments that cannot name a file: a request must not read files on the server.
PARAMETERS: dict[str, Rule] = {
    "threshold": ("a number in 0..1", lambda value: is_number(value) and 0 <= value <= 1),
    "smoothing": (
        f"a number in 0..{MOST_SMOOTHING}",
        lambda value: is_number(value) and 0 <= value <= MOST_SMOOTHING,
    ),
    "top_fraction": ("a number above 0, at most 1", lambda value: is_number(value) and 0 < value <= 1),
    "batch_size": (
        f"an integer in 1..{MOST_AT_ONCE}",
        lambda value: is_number(value) and isinstance(value, int) and 1 <= value <= MOST_AT_ONCE,
    ),
    **{
        f"return_{part}": ("true or false", lambda value: isinstance(value, bool))
        for part in ("map", "mask", "overlay", "regions")
    },
    "ignore_mask": ("a mask", lambda value: isinstance(value, (str, list))),
}
# The numbers that may come with references given as images.
SETTINGS: dict[str, Rule] = {
    "false_alarm": ("a number in 0..0.5", lambda value: is_number(value) and 0 <= value < 0.5),
    "max_patches": ("an integer >= 1", lambda value: is_number(value) and isinstance(value, int) and value >= 1),
}


@dataclass(frozen=True)
class Request:
    """The parts of a request, without those that are null.

    Args:
        inputs: an image, or a list of images, as text.
        references: `{"name": ...}`, `{"file": ...}` or the parts named by `PARTS`.
        parameters: the arguments of the pipeline, and `return_map`.
    """

    inputs: str | list[str]
    references: dict[str, Any]
    parameters: dict[str, Any]


def check_request(data: Any) -> Request:
    """Check a request; ValueError says what was expected and what came."""
    data = _fields(data, "request", KEYS)
    if "inputs" not in data:
        raise ValueError(f"request: expected 'inputs', got {shown(list(data))}")
    inputs = data["inputs"]
    if not isinstance(inputs, str):
        inputs = _images(inputs, "inputs", MOST_IMAGES)
        if not inputs:
            raise ValueError("inputs: expected at least one image, got an empty list")
    parameters = _fields(data.get("parameters", {}), "parameters", PARAMETERS)
    for name, value in parameters.items():
        _obey(PARAMETERS[name], value, f"parameters.{name}")
    if "ignore_mask" in parameters:
        check_mask(parameters["ignore_mask"], "parameters.ignore_mask")
    return Request(inputs, _references(data.get("references", {})), parameters)


def check_mask(mask: Any, name: str) -> None:
    """Check that a mask is text (an image), a box, a polygon, or a list of boxes and polygons, of a sensible size."""
    if isinstance(mask, str):
        return
    shapes = [mask] if _is_box(mask) or _is_polygon(mask) else mask
    if not isinstance(shapes, list) or not shapes or not all(_is_box(one) or _is_polygon(one) for one in shapes):
        raise ValueError(
            f"{name}: expected an image, a box [x0, y0, x1, y1] with x0 < x1 and y0 < y1, a polygon of at least three "
            f"[x, y], or a list of boxes and polygons, coordinates within {FARTHEST}, got {shown(mask)}"
        )
    if len(shapes) > MOST_SHAPES or sum(map(len, shapes)) > MOST_POINTS:
        raise ValueError(
            f"{name}: expected at most {MOST_SHAPES} boxes and polygons of {MOST_POINTS} points in all, got more"
        )


def shown(value: Any) -> str:
    """A value for an error message: never more than a few characters of what was sent."""
    if isinstance(value, dict):
        return f"an object of {len(value)} entries"
    if isinstance(value, (list, tuple)):
        if 0 < len(value) <= 3 and all(isinstance(entry, str) for entry in value):
            return shown(", ".join(value))
        return f"a list of {len(value)} entries"
    if isinstance(value, str):
        return repr(value[:SHOWN]) + (f"... ({len(value)} characters)" if len(value) > SHOWN else "")
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return "a number of many digits"
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else type(value).__name__


def _fields(value: Any, name: str, known: Any) -> dict[str, Any]:
    """Check the names in an object; entries that are null count as absent."""
    if not isinstance(value, dict):
        raise ValueError(f"{name}: expected an object, got {shown(value)}")
    if unknown := [entry for entry in value if entry not in known]:
        raise ValueError(f"{name}: expected some of {', '.join(known)}, got unknown {shown(str(unknown[0]))}")
    return {entry: given for entry, given in value.items() if given is not None}


def _obey(rule: Rule, value: Any, name: str) -> None:
    expected, holds = rule
    if not holds(value):
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}")


def _images(value: Any, name: str, most: int) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{name}: expected a list of images, got {shown(value)}")
    if len(value) > most:
        raise ValueError(f"{name}: expected at most {most} images, got {len(value)}")
    for index, image in enumerate(value):
        if not isinstance(image, str):
            raise ValueError(f"{name}[{index}]: expected an image as text, got {shown(image)}")
    return value


def _references(given: Any) -> dict[str, Any]:
    ways = ("name", "file", *PARTS)
    given = _fields(given, "references", ways)
    if len(given) == 1 and ("name" in given or "file" in given):
        [(way, value)] = given.items()
        if not isinstance(value, str):
            raise ValueError(f"references.{way}: expected text, got {shown(value)}")
        return given
    if "name" in given or "file" in given or not ("normal" in given or "abnormal" in given):
        raise ValueError(
            "references: expected {'name': ...}, {'file': ...}, or {'normal': [...], 'abnormal': [...]} or one of "
            f"both, got {shown(sorted(given)) if given else 'none'}"
        )
    return _parts(given)


def _parts(given: dict[str, Any]) -> dict[str, Any]:
    """Check references given as images."""
    parts: dict[str, Any] = {
        group: _images(given.get(group, []), f"references.{group}", MOST_REFERENCES) for group in PARTS[:2]
    }
    normal, abnormal = parts["normal"], parts["abnormal"]
    if not 1 <= len(normal) + len(abnormal) <= MOST_REFERENCES:
        raise ValueError(f"references: expected 1 to {MOST_REFERENCES} images, got {len(normal) + len(abnormal)}")
    for name in ("masks", "types"):
        values = given.get(name, [])
        if not isinstance(values, list) or (values and len(values) != len(abnormal)):
            raise ValueError(
                f"references.{name}: expected a list with one entry for each of {len(abnormal)} abnormal images, "
                f"got {shown(values)}"
            )
        parts[name] = values
    for index, mask in enumerate(parts["masks"]):
        check_mask(mask, f"references.masks[{index}]")
    for index, kind in enumerate(parts["types"]):
        if not isinstance(kind, str) or not 1 <= len(kind) <= MOST_LETTERS:
            raise ValueError(f"references.types[{index}]: expected 1 to {MOST_LETTERS} characters, got {shown(kind)}")
    for name, rule in SETTINGS.items():
        if name in given:
            _obey(rule, given[name], f"references.{name}")
            parts[name] = given[name]
    return {name: value for name, value in parts.items() if value != []}


def _is_box(value: Any) -> bool:
    return _is_coordinates(value, 4) and value[0] < value[2] and value[1] < value[3]


def _is_polygon(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= 3 and all(_is_coordinates(point, 2) for point in value)


def _is_coordinates(value: Any, count: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == count
        and all(is_number(entry) and -FARTHEST <= entry <= FARTHEST for entry in value)
    )
