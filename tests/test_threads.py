"""Work in threads: every part once, in order, and nothing left behind in torch's settings."""

import threading

import pytest
import torch

from modeling_ideal.threads import map_in_threads

from .conftest import threads

CPU = torch.device("cpu")


def test_results_come_in_the_order_of_the_parts():
    with threads(3):
        assert map_in_threads(lambda part: part * part, range(20), CPU) == [part * part for part in range(20)]


def test_each_thread_computes_alone_and_others_as_before():
    with threads(3):
        everyone = threading.Barrier(3)

        def numbers(_: int) -> tuple[str, int]:
            everyone.wait(timeout=60)
            torch.ones(4).sum()
            return threading.current_thread().name, torch.get_num_threads()

        seen = map_in_threads(numbers, range(3), CPU)
        assert len({name for name, _ in seen}) == 3
        assert [number for _, number in seen] == [1, 1, 1]
        assert torch.get_num_threads() == 3
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [3]


def test_one_thread_one_part_or_another_device_stays_where_it_is():
    here = threading.current_thread().name
    with threads(1):
        assert map_in_threads(lambda _: threading.current_thread().name, range(3), CPU) == [here] * 3
    with threads(3):
        assert map_in_threads(lambda _: threading.current_thread().name, range(1), CPU) == [here]
        meta = torch.device("meta")
        assert map_in_threads(lambda _: threading.current_thread().name, range(3), meta) == [here] * 3


def test_an_error_in_a_part_reaches_the_caller():
    def fail(part: int) -> None:
        raise ValueError(f"part {part}")

    with threads(2), pytest.raises(ValueError, match="part 0"):
        map_in_threads(fail, range(4), CPU)
