"""Timing for comparisons on a noisy machine."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def interleaved_medians(
    tasks: Mapping[Name, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[Name, float]:
    """Median seconds of each task; tasks take turns, so that noise and clock changes affect all of them."""
    seconds: dict[Name, list[float]] = {name: [] for name in tasks}
    for round_number in range(rounds + 1):
        for name, task in tasks.items():
            start = clock()
            task()
            if round_number:  # the first one warms up
                seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
