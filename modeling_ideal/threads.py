"""Independent parts of one piece of work, side by side on the cores of a CPU.

torch shares out single operations over its threads. Many small ones in a row gain little from that: all threads wait
for each other after each of them. Here a thread takes a part of the data through all of them instead.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """`function` of every part, by as many threads as torch uses, each of which computes alone.

    What torch keeps by thread (gradient mode, autocast, modes that watch operations) is the default in them.
    """
    workers = torch.get_num_threads()
    if workers == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    return list(_pool(os.getpid(), workers).map(function, parts))


@cache
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    """One a process: a forked child has none of its parent's threads."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="ideal", initializer=_compute_alone)
    everyone = Barrier(workers)
    list(pool.map(lambda _: everyone.wait(), range(workers)))  # all threads are there
    torch.set_num_threads(workers)  # they have set the default of threads that start later: set it back
    return pool


def _compute_alone() -> None:
    torch.get_num_threads()  # settles the default in this thread, which would otherwise follow and undo the next line
    torch.set_num_threads(1)
