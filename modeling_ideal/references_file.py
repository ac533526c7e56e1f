"""Reading references files: everything is checked against the file's size and itself before a tensor is loaded."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .configuration_ideal import WIDEST_SMOOTHING
from .input_checks import check_finite
from .reference_pictures import check_pictures, is_pictures_header
from .reference_previews import check_previews, is_previews_header

FORMAT = "ideal-references-2"
FORMATS = ("ideal-references-1", FORMAT)
SET_TENSORS = (
    "normal_features",
    "abnormal_deviations",
    "abnormal_sources",
    "abnormal_features",
)  # one tensor for each set
LARGEST_TILE_SIDE = 4096  # pixels; smaller pictures are padded to a tile, so a file could ask for any memory
MASK_SOURCES = ("given", "estimated", "none")
SCORE_TENSORS = ("scores.normal", "scores.abnormal", "scores.marked")

Shapes = dict[str, tuple[int, ...]]


class ReferencesFile(NamedTuple):
    """The contents of a references file."""

    format: str
    header: dict[str, Any]
    tensors: dict[str, Tensor]


def read_references(path: str | os.PathLike) -> ReferencesFile:
    """Read a references file; ValueError if it is not one, is damaged, or contradicts itself.

    Fields of the header that a newer release has added are left out.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError(f"expected a file of IDEAL references, got {str(path)!r}, which is no file")
    try:
        # It has compared the shapes and types of the tensors with the size of the file before it returns.
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_format(metadata.get("format"))
            header = _check_header(metadata.get("header", ""))
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            _check_types({name: part.get_dtype() for name, part in slices.items()})
            _check_shapes(shapes, header)
            # Clones, because a mapped file may change, and because its addresses are not aligned.
            tensors = {name: file.get_tensor(name).clone() for name in shapes}
    except SafetensorError as error:
        raise ValueError(f"expected a safetensors file of IDEAL references, got {str(path)!r}: {error}") from error
    except ValueError as error:
        raise ValueError(f"expected a file of IDEAL references, got {str(path)!r}: {error}") from error
    _check_values(path, tensors, header)
    return ReferencesFile(metadata["format"], header, tensors)


def _check_format(given: str | None) -> None:
    """Refuse a file of another format; of a newer one, and of none, with what to do."""
    if given in FORMATS:
        return
    hint = "; the file holds no references, but perhaps the weights of a model" if given in (None, "pt") else ""
    if given and given.startswith(FORMAT.rstrip("0123456789")):
        hint = "; a newer release made it: update modeling-ideal, or encode the references again with this one"
    raise ValueError(f"expected the format {' or '.join(FORMATS)}, got {given!r:.100}{hint}")


def _check_header(text: str) -> dict[str, Any]:
    """Parse the header and check each of its fields."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"header: expected JSON, got {type(error).__name__}: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"header: expected a JSON object, got {type(header).__name__}")
    checks = {
        "num_sets": ("an integer >= 1", lambda value: _is_count(value) and value >= 1),
        "num_normal": ("an integer >= 0", _is_count),
        "num_abnormal": ("an integer >= 0", _is_count),
        "mask_source": (f"one of {MASK_SOURCES}", lambda value: value in MASK_SOURCES),
        "types": ("a list of names", lambda value: _is_list(value, str)),
        "fingerprint": ("a text", lambda value: isinstance(value, str)),
        "calibration": ("a calibration or null", lambda value: value is None or _is_calibration(value)),
        "tile_size": (
            f"two integers in 1..{LARGEST_TILE_SIDE} or null",
            lambda value: value is None or (_is_size(value) and max(value) <= LARGEST_TILE_SIDE),
        ),
        "processing": ("settings or null", lambda value: value is None or isinstance(value, dict)),
        "scored_pictures": ("an integer >= 0", _is_count),
        "pictures": ("pictures or null", lambda value: value is None or is_pictures_header(value)),
        "previews": ("small pictures or null", lambda value: value is None or is_previews_header(value)),
        "scored_grid": ("two integers >= 1 or null", lambda value: value is None or _is_size(value)),
        "scored_smoothing": (
            f"a number in 0..{WIDEST_SMOOTHING} or null",
            lambda value: value is None or _is_number(value, WIDEST_SMOOTHING),
        ),
        "diversity": ("a number in 0..1 or null", lambda value: value is None or _is_share(value)),
    }
    absent = dict.fromkeys(
        (
            *("calibration", "tile_size", "processing", "pictures", "previews"),
            *("scored_grid", "scored_smoothing", "diversity"),
        )
    )
    header = {**absent, "scored_pictures": 0, **header}
    for name, (expected, holds) in checks.items():
        if name not in header or not holds(header[name]):
            raise ValueError(f"header: expected {name} to be {expected}, got {header.get(name, 'nothing')!r:.100}")
    return {name: header[name] for name in checks}


def _check_types(types: Mapping[str, str]) -> None:
    for name, given in types.items():
        by_start = {"abnormal_sources": "I64", "previews": "U8"}
        by_end = {"marked": "BOOL", "marked_copies": "BOOL"}
        expected = by_start.get(name.partition(".")[0]) or by_end.get(name.rpartition(".")[2], "F32")
        if given != expected:
            raise ValueError(f"{name}: expected the type {expected}, got {given}")


def _check_shapes(shapes: Shapes, header: Mapping[str, Any]) -> None:
    """Check that the tensors are those that the header announces, and that their shapes fit each other."""
    if header["num_sets"] > len(shapes):
        raise ValueError(f"expected tensors for {header['num_sets']} sets, got {len(shapes)} tensors")
    with_features = "abnormal_features.0" in shapes  # which a model needs for one form of the score alone
    kinds = SET_TENSORS[: 1 if not header["num_abnormal"] else 4 if with_features else 3]
    sets = [[f"{kind}.{index}" for kind in kinds] for index in range(header["num_sets"])]
    expected = {name for names in sets for name in names}
    # A training-free model has no deviation vectors.
    optional = {*SCORE_TENSORS, "deviation_vectors"} if header["num_abnormal"] else set(SCORE_TENSORS)
    sets_and_scores = {name for name in shapes if not name.startswith(("pictures.", "previews."))}
    if sets_and_scores - optional != expected:
        raise ValueError(f"expected the tensors {sorted(expected)[:6]}, got {sorted(shapes)[:6]}")
    first = shapes["normal_features.0"]
    channels = first[-1] if len(first) == 2 else 0
    for names in sets:
        normal = shapes[names[0]]
        if len(normal) != 2 or normal[0] < 1 or normal[1] != channels or channels < 1:
            raise ValueError(f"{names[0]}: expected patches (Q, {channels or 'C'}), got {normal}")
        if len(names) > 1:
            deviations, sources = shapes[names[1]], shapes[names[2]]
            if len(deviations) != 2 or deviations[1] != channels or sources != deviations[:1]:
                raise ValueError(
                    f"{names[1]}: expected (A, {channels}) with sources (A,), got {deviations} with {sources}"
                )
            if any(shapes[name] != deviations for name in names[3:]):
                raise ValueError(f"{names[3]}: expected {deviations}, as the deviations, got {shapes[names[3]]}")
    vectors = shapes.get("deviation_vectors", (len(sets), 1, channels))
    if len(vectors) != 3 or vectors[0] != len(sets) or vectors[1] < 1 or vectors[2] != channels:
        raise ValueError(f"deviation_vectors: expected ({len(sets)}, M, {channels}), got {vectors}")
    if header["types"] and len(header["types"]) != header["num_abnormal"]:
        raise ValueError(f"types: expected {header['num_abnormal']}, one for each abnormal reference")
    _check_score_shapes({name: shapes[name] for name in SCORE_TENSORS if name in shapes}, header)
    check_pictures(shapes, header)
    check_previews(shapes, header)


def _check_score_shapes(shapes: Shapes, header: Mapping[str, Any]) -> None:
    if not shapes:
        return
    normal, abnormal = (shapes.get(name, ()) for name in SCORE_TENSORS[:2])
    dimensions = 3 if header["tile_size"] is None else 4
    if {len(normal), len(abnormal)} != {dimensions} or not header["scored_pictures"]:
        expected = "(n, h, w)" if dimensions == 3 else "(n, T, h, w)"
        raise ValueError(f"expected scores {expected} of at least one picture, got {shapes}")
    if header["scored_grid"] and (dimensions == 3 or math.prod(header["scored_grid"]) != normal[1]):
        raise ValueError(f"scored_grid: expected that of {normal} tiles, got {header['scored_grid']}")
    if SCORE_TENSORS[2] in shapes and shapes[SCORE_TENSORS[2]] != abnormal:
        raise ValueError(f"scores.marked: expected {abnormal}, as the scores, got {shapes[SCORE_TENSORS[2]]}")
    for name, shape in (("scores.normal", normal), ("scores.abnormal", abnormal)):
        if shape[0] and 0 in shape:
            raise ValueError(f"{name}: expected maps of at least one patch, got {shape}")


def _check_values(path: str | os.PathLike, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            check_finite(f"{str(path)!r}, {name}", tensor)
        elif name.startswith("abnormal_sources") and len(tensor):
            low, high = int(tensor.min()), int(tensor.max())
            limit = header["num_abnormal"] if header["tile_size"] is None else len(tensor)  # else they number tiles
            if low < 0 or high >= limit:
                raise ValueError(f"{str(path)!r}, {name}: expected numbers in 0..{limit - 1}, got {low} to {high}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(part, kind) for part in value)


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_count(side) and side >= 1 for side in value)


def _is_share(value: Any) -> bool:
    return _is_number(value, 1)


def _is_number(value: Any, highest: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= highest


def _is_calibration(value: Any) -> bool:
    """Whether a value has what a calibration is made from."""
    if not isinstance(value, dict):
        return False
    scores: list[Any] = [value.get("normal_scores"), value.get("abnormal_scores")]
    return (
        all(_is_list(part, float) and all(map(_is_share, part)) for part in scores)
        and bool(scores[0])
        and all(_is_share(value.get(name)) and value[name] > 0 for name in ("false_alarm", "supported_false_alarm"))
        and value["false_alarm"] < 0.5
        and (value.get("top_fraction") is None or (_is_share(value["top_fraction"]) and value["top_fraction"] > 0))
    )
