"""Batches: every episode once, whatever the number of processes, and no process without one."""

import pytest
import torch

from modeling_ideal.training.encoder import BackboneEncoder
from modeling_ideal.training.head.batches import Batches
from modeling_ideal.training.head.source import draw_episodes, load_source
from modeling_ideal.training.head.starting_point import load_start


@pytest.fixture
def build(options):
    chosen = options(setups=["N1A1", "N2A2"])  # 14 episodes in batches of 4: the last one has 2
    source, _ = load_source(chosen, BackboneEncoder(*load_start(chosen)))
    episodes, _ = draw_episodes(source, chosen)

    def batches(index=0, count=1):
        return Batches(episodes, source.cache, chosen.batch_size, torch.device("cpu"), index, count)

    return batches


@pytest.mark.parametrize("count", [1, 2, 3])
def test_processes_share_each_batch(build, count):
    shares = [list(build(index, count).read_from(0, 8)) for index in range(count)]
    whole = list(build().read_from(0, 8))
    for step, batch in enumerate(whole):
        parts = [share[step] for share in shares]
        assert {part.step for part in parts} == {step}
        counted = [each.seed for part in parts if part.weight for each in part.episodes]
        assert sorted(counted) == sorted(each.seed for each in batch.episodes)
        assert sum(part.weight * len(part.episodes) for part in parts) == pytest.approx(1)
        assert all(part.episodes for part in parts)
    assert [len(batch.episodes) for batch in whole] == [4, 4, 4, 2] * 2
    seeds = [each.seed for batch in whole for each in batch.episodes]
    assert len({*seeds}) == 2 * 14


def test_a_run_that_goes_on_reads_what_it_would_have_read(build):
    whole, rest = list(build().read_from(0, 8)), list(build().read_from(5, 8))
    for ours, theirs in zip(rest, whole[5:], strict=True):
        for a, b in zip(ours.episodes, theirs.episodes, strict=True):
            assert a.seed == b.seed
            assert torch.equal(a.query, b.query)


def test_an_episode_is_in_float_with_its_masks(build):
    episodes = [each for batch in build().read_from(0, 4) for each in batch.episodes]
    assert {(len(each.normal), len(each.abnormal)) for each in episodes} == {(1, 1), (2, 2)}
    assert {each.query.dtype for each in episodes} == {torch.float32}
    assert {each.query_mask.any().item() == bool(each.label) for each in episodes} == {True}
    assert all(each.marked.flatten(1).any(1).all() for each in episodes)
    assert {each.label for each in episodes} == {0, 1}
