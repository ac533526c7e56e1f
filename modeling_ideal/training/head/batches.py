"""Batches of episodes as tensors, read from the feature cache in the background."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...data.episodes import Episode, TrainingEpisodes
from ...data.feature_cache import FeatureCache
from ...threads import lone_threads
from .objective import EpisodeTensors


@dataclass(frozen=True)
class Batch:
    """This process's share of the episodes of one optimiser step."""

    step: int
    episodes: Sequence[EpisodeTensors]
    weight: float  # of each of them in the mean over the whole batch; 0 for one that only keeps the processes in step


@dataclass(frozen=True)
class Batches:
    """All batches of a run. An episode and its dropout depend on the seed and its position alone."""

    sampler: TrainingEpisodes
    cache: FeatureCache
    batch_size: int
    device: torch.device
    process_index: int = 0
    num_processes: int = 1

    def read_from(self, step: int, steps: int) -> Iterator[Batch]:
        """The batches of steps `step` to `steps` - 1, each read in the background while the one before is used."""
        with lone_threads(1) as reader:
            coming = reader.submit(self.read, step)
            for following in range(step + 1, steps + 1):
                batch = coming.result()
                if following < steps:
                    coming = reader.submit(self.read, following)
                yield batch

    def read(self, step: int) -> Batch:
        """This process's share of optimiser step `step`."""
        per_epoch = self.sampler.episodes_per_epoch
        epoch, place = divmod(step, -(-per_epoch // self.batch_size))
        indices = range(place * self.batch_size, min((place + 1) * self.batch_size, per_epoch))
        share = indices[self.process_index :: self.num_processes]
        # The last batch may have fewer episodes than there are processes, but all must take part in the step.
        weight = 1 / len(indices) if share else 0.0
        return Batch(step, [self._read_episode(epoch, index) for index in share or indices[:1]], weight)

    def _read_episode(self, epoch: int, index: int) -> EpisodeTensors:
        episode = self.sampler.episode(epoch, index)
        [seed] = np.random.SeedSequence((self.sampler.seed, 3, epoch, index)).generate_state(1, np.uint64)
        return read_episode(self.cache, episode, int(seed), self.device)


def read_episode(cache: FeatureCache, episode: Episode, seed: int, device: torch.device) -> EpisodeTensors:
    """The tensors of an episode, its features in float32; `marked` is None if a reference has no mask."""

    def features(indices: Sequence[int]) -> Tensor:
        return cache.features(indices).to(device).float()

    marked = None
    if all(cache.has_mask(index) for index in episode.abnormal):
        marked = cache.patch_masks(episode.abnormal).to(device)
    return EpisodeTensors(
        query=features([episode.query])[0],
        normal=features(episode.normal) if episode.normal else None,
        abnormal=features(episode.abnormal),
        marked=marked,
        query_mask=cache.pixel_masks([episode.query])[0].to(device),
        label=cache.labels[episode.query],
        seed=seed,
    )
