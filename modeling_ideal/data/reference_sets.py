"""Reference sets for inference: fixed for each category and seed, and saved so that results can be repeated."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..writing.files import write_json
from .catalogue import Catalogue
from .episodes import Episode, Pools
from .folder import NORMAL
from .setups import SETTINGS, Setup

_FORMAT = 1


@dataclass(frozen=True)
class Reference:
    """A reference image: its path relative to the root of the data set, and the hash of its content."""

    path: str
    content: str


@dataclass(frozen=True)
class ReferenceSet:
    """The references of one category, which all its queries share."""

    category: str
    setup: str
    seed: int
    anomaly_type: str | None
    """The type that all abnormal references share; None if there are none."""
    normal: tuple[Reference, ...]
    abnormal: tuple[Reference, ...]


def draw_references(catalogue: Catalogue, setup: str | Setup, seed: int) -> list[ReferenceSet]:
    """Draw one reference set per category: normal images of its train split, and one anomaly type of its test split.

    The set of a category depends only on the seed, its name and its own files. For one seed, larger set-ups contain
    the smaller ones, provided that the anomaly type drawn first has enough images.
    """
    setup = setup if isinstance(setup, Setup) else Setup.parse(setup)
    pools = Pools(catalogue)
    return [_draw_category(pools, category, setup, seed) for category in pools.normal]


def _draw_category(pools: Pools, category: str, setup: Setup, seed: int) -> ReferenceSet:
    key = int.from_bytes(hashlib.blake2b(category.encode(), digest_size=8).digest(), "big")
    normal_generator, type_generator, abnormal_generator = (
        np.random.default_rng((seed, key, stream)) for stream in range(3)
    )
    enough = pools.types_with_enough(category, setup)
    normal = pools.draw(normal_generator, pools.normal[category], setup.num_normal)
    anomaly_type = None
    abnormal: tuple[int, ...] = ()
    if enough:
        # All types are shuffled, not just those with enough images, so that larger set-ups keep the type if they can.
        names = list(pools.abnormal[category])
        order = (names[position] for position in type_generator.permutation(len(names)))
        anomaly_type = next(name for name in order if name in enough)
        abnormal = pools.draw(abnormal_generator, pools.abnormal[category][anomaly_type], setup.num_abnormal)

    def references(indices: Sequence[int]) -> tuple[Reference, ...]:
        return tuple(Reference(pools.catalogue.paths[index], pools.catalogue.contents[index]) for index in indices)

    return ReferenceSet(category, str(setup), seed, anomaly_type, references(normal), references(abnormal))


def write_references(path: str | Path, sets: Sequence[ReferenceSet]) -> None:
    """Write reference sets to a JSON file."""
    content = {"format": _FORMAT, "reference_sets": [asdict(reference_set) for reference_set in sets]}
    write_json(Path(path), content)


def read_references(path: str | Path) -> list[ReferenceSet]:
    """Read a file of `write_references`; ValueError if it is anything else."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']!r}")
        return [_reference_set(**fields) for fields in content["reference_sets"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected reference sets in format {_FORMAT}, got {type(error).__name__}: {error}"
        ) from error


def _reference_set(normal: list[dict[str, Any]], abnormal: list[dict[str, Any]], **fields: Any) -> ReferenceSet:
    return ReferenceSet(
        normal=tuple(Reference(**reference) for reference in normal),
        abnormal=tuple(Reference(**reference) for reference in abnormal),
        **fields,
    )


def inference_episodes(catalogue: Catalogue, references: ReferenceSet, setting: str = "general") -> list[Episode]:
    """Make an episode for each query of a reference set's category.

    In the General setting the queries are all test images except the references; in the Hard setting, images of the
    references' anomaly type are left out too. Raises ValueError if no normal or no anomalous query is left (a
    category with a single anomaly type has no Hard setting, see `applicable_settings`), or if a reference is
    missing or has changed.
    """
    if setting not in SETTINGS:
        raise ValueError(f"expected a setting among {', '.join(SETTINGS)}, got {setting!r}")
    normal, abnormal = (_indices(catalogue, which) for which in (references.normal, references.abnormal))
    queries = _queries(catalogue, references, setting)
    anomalous = sum(catalogue.anomaly_types[query] != NORMAL for query in queries)
    if anomalous == 0 or anomalous == len(queries):
        raise ValueError(
            f"category {references.category!r}, {references.setup}, setting {setting!r}: expected normal and "
            f"anomalous queries, got {len(queries) - anomalous} normal and {anomalous} anomalous "
            f"besides the references of type {references.anomaly_type!r}"
        )
    return [Episode(query, normal, abnormal) for query in queries]


def applicable_settings(catalogue: Catalogue, references: ReferenceSet) -> tuple[str, ...]:
    """The settings with anomalous queries: Hard needs abnormal references and a second anomaly type."""
    return tuple(
        setting
        for setting in SETTINGS
        if any(catalogue.anomaly_types[query] != NORMAL for query in _queries(catalogue, references, setting))
    )


def _queries(catalogue: Catalogue, references: ReferenceSet, setting: str) -> list[int]:
    if setting == "hard" and references.anomaly_type is None:
        return []
    taken = {reference.content for reference in (*references.normal, *references.abnormal)}
    left_out = references.anomaly_type if setting == "hard" else None
    return [
        query
        for normal in (True, False)
        for query in catalogue.select(references.category, "test", normal)
        if catalogue.contents[query] not in taken and catalogue.anomaly_types[query] != left_out
    ]


def _indices(catalogue: Catalogue, references: Sequence[Reference]) -> tuple[int, ...]:
    """Find references in the catalogue; ValueError if one is missing or its content has changed."""
    places = {path: index for index, path in enumerate(catalogue.paths)}
    for reference in references:
        if reference.path not in places:
            raise ValueError(f"expected the reference {reference.path} among the records, found no such path")
        content = catalogue.contents[places[reference.path]]
        if content != reference.content:
            raise ValueError(
                f"{reference.path}: expected the content {reference.content}, got {content}: the image has changed"
            )
    return tuple(places[reference.path] for reference in references)
