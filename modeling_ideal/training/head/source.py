"""The source data set of a run: what is trained on, what is held out, and checks of its pictures and masks."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import datasets
from accelerate import PartialState

from ...data.catalogue import Catalogue
from ...data.episodes import TrainingEpisodes
from ...data.feature_cache import FeatureCache, encode_records, mask_keys
from ...data.folder import NORMAL
from ...data.records import load_records
from ..encoder import BackboneEncoder
from .options import HeadTrainingOptions

SET_ASIDE = 5  # every fifth normal picture is a query if a category has no normal test pictures
_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Source:
    """Records with their cached features; index i of the catalogue is index i of the cache."""

    catalogue: Catalogue
    cache: FeatureCache

    @property
    def digest(self) -> str:
        """A hash that changes with any picture, mask, label or split."""
        return _digest(self.catalogue, self.cache.mask_keys)

    @property
    def categories(self) -> list[str]:
        """The names of the categories, sorted."""
        return sorted(set(self.catalogue.categories))

    @property
    def anomalous(self) -> list[int]:
        """The anomalous records."""
        return [index for index, name in enumerate(self.catalogue.anomaly_types) if name != NORMAL]

    @property
    def without_mask(self) -> list[int]:
        """The anomalous records that have no mask."""
        return [index for index in self.anomalous if not self.cache.has_mask(index)]

    def only(self, categories: Collection[str]) -> "Source":
        """The records of these categories."""
        kept = [index for index, name in enumerate(self.catalogue.categories) if name in categories]

        def rows(column: Sequence) -> tuple:
            return tuple(column[index] for index in kept)

        cache = self.cache
        return Source(
            self.catalogue.rows(kept),
            FeatureCache(cache.directory, *map(rows, (cache.paths, cache.labels, cache.contents, cache.mask_keys))),
        )

    def names(self, indices: Sequence[int]) -> str:
        """The paths of some records in one line."""
        shown = ", ".join(self.catalogue.paths[index] for index in indices[:_NAMED_AT_MOST])
        more = len(indices) - _NAMED_AT_MOST
        return f"{shown} and {more} more" if more > 0 else shown


def load_source(options: HeadTrainingOptions, encoder: BackboneEncoder) -> tuple[Source, Source | None]:
    """The sources to train on and to validate on, encoded if the cache lacks them; processes share the work."""
    records, training = _used_records(options)
    everything = Source(
        cache=encode_records(records, encoder, options.feature_cache), catalogue=Catalogue.from_records(records)
    )
    check_masks(everything)
    held_out = everything.only(options.held_out) if options.held_out else None
    if held_out is not None and held_out.without_mask:
        raise ValueError(
            "held_out: expected a mask for every anomalous picture, for the pixel metrics; "
            f"got none for {held_out.names(held_out.without_mask)}"
        )
    return everything.only(training), held_out


def current_digests(options: HeadTrainingOptions) -> tuple[str, str | None]:
    """The digests of the sources to train on and to validate on as they are now, without encoding a picture."""
    records, training = _used_records(options)
    catalogue, masks = Catalogue.from_records(records), mask_keys(records)
    digests = []
    for categories in (training, {*options.held_out}):
        kept = [index for index, name in enumerate(catalogue.categories) if name in categories]
        digests.append(_digest(catalogue.rows(kept), [masks[index] for index in kept]) if kept else None)
    return str(digests[0]), digests[1]


def _used_records(options: HeadTrainingOptions) -> tuple[datasets.Dataset, set[str]]:
    """The records of all categories in use, and the categories to train on."""
    with PartialState().main_process_first():
        records = load_records(options.source, options.layout, allow_missing_masks=True)
    known = list(records["category"])
    unknown = sorted({*options.categories, *options.held_out} - {*known})
    if unknown:
        raise ValueError(f"expected categories among {sorted(set(known))}, got {unknown}")
    training = {*(options.categories or known)} - {*options.held_out}
    if not training:
        raise ValueError(f"expected a category to train on, got all {sorted(set(known))} held out")
    if options.categories:
        used = training | {*options.held_out}
        records = records.select([index for index, name in enumerate(known) if name in used])
    return records, training


def _digest(catalogue: Catalogue, masks: Sequence[str | None]) -> str:
    columns = [catalogue.paths, catalogue.anomaly_types, catalogue.splits, catalogue.contents, masks]
    text = json.dumps([list(column) for column in columns])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_masks(source: Source) -> None:
    """Refuse empty masks: as a reference such a picture shows no anomaly, as a query it teaches to ignore one."""
    marked = [index for index in source.anomalous if source.cache.has_mask(index)]
    empty = [index for index in marked if not source.cache.patch_masks([index]).any()]
    if empty:
        which = "all masks" if len(empty) == len(marked) else f"{len(empty)} of {len(marked)} masks"
        raise ValueError(
            f"{which} of anomalous pictures are empty ({source.names(empty)}): check that the mask files belong to "
            "these pictures and that anomalous pixels are not 0; `ideal data check` lists them"
        )


def set_aside_queries(source: Source) -> tuple[Source, list[str]]:
    """Normal queries for categories without normal test pictures, and notes that name them.

    A folder of one's own has no test split. Every fifth normal picture of such a category becomes a query and is
    no longer a reference.
    """
    catalogue = source.catalogue
    splits, notes = list(catalogue.splits), []
    for category in source.categories:
        if catalogue.select(category, "test", normal=True) or not catalogue.select(category, "test", normal=False):
            continue
        normal = catalogue.select(category, "train", normal=True)
        chosen = normal[::SET_ASIDE]
        for index in chosen:
            splits[index] = "test"
        notes.append(
            f"{category}: no normal test pictures, so {len(chosen)} of its {len(normal)} normal pictures "
            f"serve as queries ({source.names(chosen)}), the others as references"
        )
    return replace(source, catalogue=replace(catalogue, splits=splits)), notes


def draw_episodes(source: Source, options: HeadTrainingOptions) -> tuple[TrainingEpisodes, list[str]]:
    """The training episodes of a source, and notes on its pictures for the user."""
    source, notes = set_aside_queries(source)
    lacking = source.without_mask
    if lacking and len(lacking) == len(source.anomalous):
        raise ValueError(
            "expected a mask for at least one anomalous picture, to learn where the anomaly is; got none for all "
            f"{len(lacking)} ({source.names(lacking)})"
        )
    if lacking:
        notes.append(
            f"{len(lacking)} of {len(source.anomalous)} anomalous pictures have no mask "
            f"and serve as references only, never as queries: {source.names(lacking)}"
        )
    episodes = TrainingEpisodes(
        source.catalogue,
        options.setups,
        seed=options.seed,
        episodes_per_epoch=options.episodes_per_epoch,
        references_only=frozenset(lacking),
    )
    return episodes, notes
