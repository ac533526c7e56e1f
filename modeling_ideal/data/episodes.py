"""Episodes: a query with its normal and abnormal references, drawn from a seed and free of leaks.

Episodes hold indices into the records and are drawn from a `Catalogue` without opening an image. A query is never
among its own references, neither by path nor by content.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from .catalogue import Catalogue
from .setups import Setup


@dataclass(frozen=True)
class Episode:
    """A query and its references, as indices into the records."""

    query: int
    normal: tuple[int, ...]
    abnormal: tuple[int, ...]


Pool = dict[str, int]
"""Candidate references: indices by content hash, so that each picture occurs once, sorted by path."""


class Pools:
    """The candidate references of each category: its normal train images, and its anomalous test images by type."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.normal: dict[str, Pool] = {}
        self.abnormal: dict[str, dict[str, Pool]] = {}
        for category in sorted(set(catalogue.categories)):
            self.normal[category] = {}
            for index in catalogue.select(category, "train", normal=True):
                self.normal[category].setdefault(catalogue.contents[index], index)
            by_type: dict[str, Pool] = defaultdict(dict)
            for index in catalogue.select(category, "test", normal=False):
                by_type[catalogue.anomaly_types[index]].setdefault(catalogue.contents[index], index)
            self.abnormal[category] = dict(sorted(by_type.items()))

    def types_with_enough(self, category: str, setup: Setup, query: int | None = None) -> list[str]:
        """The anomaly types with enough images for a set-up; [] if it has no abnormal references.

        Raises ValueError, with the counts, if the category has too few references besides the query.
        """
        content = None if query is None else self.catalogue.contents[query]
        besides = "" if query is None else f" besides the query {self.catalogue.paths[query]}"
        num_normal = len(self.normal[category]) - (content in self.normal[category])
        if num_normal < setup.num_normal:
            raise ValueError(
                f"category {category!r}: {setup} asks for {setup.num_normal} normal references, "
                f"but its train split has {num_normal} different normal images{besides}"
            )
        if not setup.num_abnormal:
            return []
        counts = {name: len(pool) - (content in pool) for name, pool in self.abnormal[category].items()}
        enough = [name for name, count in counts.items() if count >= setup.num_abnormal]
        if not enough:
            found = ", ".join(f"{count} of {name!r}" for name, count in counts.items()) or "none"
            raise ValueError(
                f"category {category!r}: {setup} asks for {setup.num_abnormal} abnormal references "
                f"of one type, but its test split has {found}{besides}"
            )
        return enough

    def draw(
        self, generator: np.random.Generator, pool: Pool, count: int, query: int | None = None
    ) -> tuple[int, ...]:
        """Draw `count` different pictures other than the query; a larger count only appends to a smaller one."""
        content = None if query is None else self.catalogue.contents[query]
        candidates = [index for key, index in pool.items() if key != content]
        return tuple(candidates[position] for position in generator.permutation(len(candidates))[:count])


class TrainingEpisodes:
    """The episodes of the training protocol: queries from the test split, half of them normal, half anomalous.

    The normal references come from the train split of the query's category. The abnormal ones come from its test
    split and share one anomaly type, which is drawn for each episode. Every episode has its own random generator,
    seeded by (seed, epoch, index), so it does not depend on the process that draws it or on earlier draws.

    Args:
        catalogue: of the records to draw from.
        setups: numbers of references, such as "N1A1", from which each episode draws one.
        seed: of all draws.
        episodes_per_epoch: number of episodes in an epoch.
        episodes_per_setup: number of consecutive episodes with the same set-up, so that they can form a batch.
        references_only: indices that are never queries, for example anomalous records without a mask.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        setups: Sequence[str | Setup] = ("N1A1",),
        seed: int = 0,
        episodes_per_epoch: int = 500,
        episodes_per_setup: int = 1,
        references_only: Collection[int] = (),
    ) -> None:
        if min(episodes_per_epoch, episodes_per_setup, len(setups)) < 1:
            raise ValueError(
                "expected at least one episode per epoch, one episode per set-up and one set-up, "
                f"got {episodes_per_epoch}, {episodes_per_setup} and {len(setups)}"
            )
        self.setups = [setup if isinstance(setup, Setup) else Setup.parse(setup) for setup in setups]
        self.seed = seed
        self.episodes_per_epoch = episodes_per_epoch
        self.episodes_per_setup = episodes_per_setup
        self._pools = Pools(catalogue)
        self._queries: dict[bool, list[int]] = {
            normal: [
                index
                for name in self._pools.normal
                for index in catalogue.select(name, "test", normal)
                if index not in references_only
            ]
            for normal in (True, False)
        }
        self._check()

    def _check(self) -> None:
        """Check that every query has enough references, so that a run does not fail half-way."""
        for kind, queries in (("normal", self._queries[True]), ("anomalous", self._queries[False])):
            if not queries:
                raise ValueError(f"expected {kind} test images to draw queries from, got 0 in the test split")
        for query in (*self._queries[True], *self._queries[False]):
            for setup in self.setups:
                self._pools.types_with_enough(self._pools.catalogue.categories[query], setup, query)

    def epoch(self, epoch: int) -> list[Episode]:
        """Draw all episodes of an epoch."""
        return [self.episode(epoch, index) for index in range(self.episodes_per_epoch)]

    def episode(self, epoch: int, index: int) -> Episode:
        """Draw one episode of an epoch."""
        if epoch < 0 or not 0 <= index < self.episodes_per_epoch:
            raise ValueError(
                f"expected an epoch from 0 and an index below {self.episodes_per_epoch}, got {epoch}, {index}"
            )
        pools = self._pools
        # Streams 0, 1 and 2 of the seed. Episodes 2i and 2i + 1 share one coin toss and take opposite sides, so that
        # normal and anomalous queries are equally frequent.
        coin = np.random.default_rng((self.seed, 0, epoch, index // 2)).integers(2)
        setup_generator = np.random.default_rng((self.seed, 1, epoch, index // self.episodes_per_setup))
        generator = np.random.default_rng((self.seed, 2, epoch, index))
        setup = self.setups[setup_generator.integers(len(self.setups))]

        queries = self._queries[bool(coin ^ (index & 1))]
        query = queries[generator.integers(len(queries))]
        category = pools.catalogue.categories[query]
        types = pools.types_with_enough(category, setup, query)
        abnormal: tuple[int, ...] = ()
        if types:
            anomaly_type = types[generator.integers(len(types))]
            pool = pools.abnormal[category][anomaly_type]
            abnormal = pools.draw(generator, pool, setup.num_abnormal, query)
        normal = pools.draw(generator, pools.normal[category], setup.num_normal, query)
        return Episode(query, normal, abnormal)
