"""Episodes: a query with its normal and abnormal references, drawn by seed and free of leaks.

Episodes hold indices into the records and are drawn from a `Catalogue`; no image is opened. A query is never
among its references, neither by path nor by content.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from .catalogue import Catalogue
from .setups import Setup


@dataclass(frozen=True)
class Episode:
    """Indices into the records."""

    query: int
    normal: tuple[int, ...]
    abnormal: tuple[int, ...]


Pool = dict[str, int]
"""Possible references by content, so each picture once, in the order of their paths."""


class Pools:
    """The references to draw from: a category's normal train images, its anomalous test images by type."""

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
        """The types that the abnormal references may have; [] where none are asked for.

        ValueError with the counts where the category has too few references besides the query.
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
        """`count` different pictures, never the query's; a longer draw begins with the shorter one."""
        content = None if query is None else self.catalogue.contents[query]
        candidates = [index for key, index in pool.items() if key != content]
        return tuple(candidates[position] for position in generator.permutation(len(candidates))[:count])


class TrainingEpisodes:
    """The training protocol: queries from the test split, normal or anomalous with equal chance.

    The normal references come from the train split of the query's category, the abnormal ones from its test
    split and are of a single type, drawn anew for each episode. Of several `setups` each episode draws one;
    `episodes_per_setup` consecutive ones share it, so that they can be stacked into a batch. The records in
    `references_only`, anomalous ones without a mask for example, are never queries.

    Every episode has a generator of its own, seeded by (seed, epoch, index): it does not depend on which
    process or worker draws it, nor on what was drawn before.
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
                f"expected at least one episode an epoch, episode a set-up and set-up, "
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
        """Every query must find its references, and that is said now rather than in the middle of a run."""
        for kind, queries in (("normal", self._queries[True]), ("anomalous", self._queries[False])):
            if not queries:
                raise ValueError(f"expected {kind} test images to draw queries from, got 0 in the test split")
        for query in (*self._queries[True], *self._queries[False]):
            for setup in self.setups:
                self._pools.types_with_enough(self._pools.catalogue.categories[query], setup, query)

    def epoch(self, epoch: int) -> list[Episode]:
        """All episodes of an epoch."""
        return [self.episode(epoch, index) for index in range(self.episodes_per_epoch)]

    def episode(self, epoch: int, index: int) -> Episode:
        """One episode."""
        if epoch < 0 or not 0 <= index < self.episodes_per_epoch:
            raise ValueError(
                f"expected an epoch from 0 and an index below {self.episodes_per_epoch}, got {epoch}, {index}"
            )
        pools = self._pools
        # Streams 0, 1, 2 of the seed. Episodes 2i and 2i + 1 toss one coin and take its two sides: the
        # chances are equal and so are the numbers.
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
