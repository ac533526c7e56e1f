"""The source data set of a run: what is trained on, what is held out, and whether the pictures are fit for it."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from accelerate import PartialState

from ...data.catalogue import Catalogue
from ...data.episodes import TrainingEpisodes
from ...data.feature_cache import FeatureCache, encode_records
from ...data.folder import NORMAL
from ...data.records import load_records
from ..encoder import BackboneEncoder
from .options import TrainingArguments

SET_ASIDE = 5  # every fifth normal picture is a query where the source has no normal test pictures
_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Source:
    """Records with their cached features; index i of the catalogue is index i of the cache."""

    catalogue: Catalogue
    cache: FeatureCache

    @property
    def digest(self) -> str:
        """Changes with every picture, mask, label or split."""
        catalogue, cache = self.catalogue, self.cache
        columns = [catalogue.paths, catalogue.anomaly_types, catalogue.splits, catalogue.contents, cache.mask_keys]
        text = json.dumps([list(column) for column in columns])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

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

        catalogue, cache = self.catalogue, self.cache
        return Source(
            Catalogue(
                *map(
                    rows,
                    (
                        catalogue.paths,
                        catalogue.categories,
                        catalogue.anomaly_types,
                        catalogue.splits,
                        catalogue.contents,
                    ),
                )
            ),
            FeatureCache(cache.directory, *map(rows, (cache.paths, cache.labels, cache.contents, cache.mask_keys))),
        )

    def names(self, indices: Sequence[int]) -> str:
        """The paths of some records in one line."""
        shown = ", ".join(self.catalogue.paths[index] for index in indices[:_NAMED_AT_MOST])
        more = len(indices) - _NAMED_AT_MOST
        return f"{shown} and {more} more" if more > 0 else shown


def load_source(arguments: TrainingArguments, encoder: BackboneEncoder) -> tuple[Source, Source | None]:
    """The source to train on and that to validate on, encoded once; under several processes they share the work."""
    with PartialState().main_process_first():
        records = load_records(arguments.source, arguments.layout, allow_missing_masks=True)
    known = list(records["category"])
    unknown = sorted({*arguments.categories, *arguments.held_out} - {*known})
    if unknown:
        raise ValueError(f"expected categories among {sorted(set(known))}, got {unknown}")
    training = {*(arguments.categories or known)} - {*arguments.held_out}
    if not training:
        raise ValueError(f"expected a category to train on, got all {sorted(set(known))} held out")
    if arguments.categories:
        used = training | {*arguments.held_out}
        records = records.select([index for index, name in enumerate(known) if name in used])
    everything = Source(
        cache=encode_records(records, encoder, arguments.feature_cache), catalogue=Catalogue.from_records(records)
    )
    check_masks(everything)
    held_out = everything.only(arguments.held_out) if arguments.held_out else None
    if held_out is not None and held_out.without_mask:
        raise ValueError(
            f"held out: expected a mask for every anomalous picture, to measure pixels by; "
            f"got none for {held_out.names(held_out.without_mask)}"
        )
    return everything.only(training), held_out


def check_masks(source: Source) -> None:
    """Refuse a mask in which nothing is marked: as a reference it shows no anomaly, as a query it hides one."""
    marked = [index for index in source.anomalous if source.cache.has_mask(index)]
    empty = [index for index in marked if not source.cache.patch_masks([index]).any()]
    if empty:
        which = "all masks" if len(empty) == len(marked) else f"{len(empty)} of {len(marked)} masks"
        raise ValueError(
            f"{which} of anomalous pictures are empty ({source.names(empty)}): check that the mask files are those of "
            "these pictures and that anomalous pixels are not 0; `ideal data check` lists them"
        )


def set_aside_queries(source: Source) -> tuple[Source, list[str]]:
    """Normal queries for the categories that have no normal test pictures, as one's own folder has none.

    Every fifth of the normal pictures of such a category becomes a query and is no longer a reference; the
    sentences say so.
    """
    catalogue = source.catalogue
    splits, sentences = list(catalogue.splits), []
    for category in source.categories:
        if catalogue.select(category, "test", normal=True) or not catalogue.select(category, "test", normal=False):
            continue
        normal = catalogue.select(category, "train", normal=True)
        chosen = normal[::SET_ASIDE]
        for index in chosen:
            splits[index] = "test"
        sentences.append(
            f"{category}: no normal test pictures, so {len(chosen)} of its {len(normal)} normal pictures "
            f"are queries ({source.names(chosen)}) and the others references"
        )
    return replace(source, catalogue=replace(catalogue, splits=splits)), sentences


def draw_episodes(source: Source, arguments: TrainingArguments) -> tuple[TrainingEpisodes, list[str]]:
    """The training episodes of a source, and what a user should know about them."""
    source, sentences = set_aside_queries(source)
    lacking = source.without_mask
    if lacking and len(lacking) == len(source.anomalous):
        raise ValueError(
            f"expected masks of anomalous pictures, to learn from them where the anomaly is; got none for all "
            f"{len(lacking)} ({source.names(lacking)}): mark the anomaly in one of them at least"
        )
    if lacking:
        sentences.append(
            f"{len(lacking)} of {len(source.anomalous)} anomalous pictures have no mask "
            f"and are references alone, never queries: {source.names(lacking)}"
        )
    episodes = TrainingEpisodes(
        source.catalogue,
        arguments.setups,
        seed=arguments.seed,
        episodes_per_epoch=arguments.episodes_per_epoch,
        references_only=frozenset(lacking),
    )
    return episodes, sentences
