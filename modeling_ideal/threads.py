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


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part], device: torch.device) -> list[Result]:
    """`function` of every part; on a CPU by as many threads as torch uses, each of which computes alone.

    What torch keeps by thread (gradient mode, autocast, modes that watch operations) is the default in them.
    """
    workers = torch.get_num_threads()
    if device.type != "cpu" or workers == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    return list(_pool(os.getpid(), workers).map(function, parts))


@cache
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    """One a process: a forked child has none of its parent's threads."""
    return lone_threads(workers)


def lone_threads(count: int) -> ThreadPoolExecutor:
    """A pool of threads in which torch computes alone: they do not call other threads together, and are not slowed."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, thread_name_prefix="ideal", initializer=_compute_alone)
    everyone = Barrier(count)
    list(pool.map(lambda _: everyone.wait(), range(count)))  # all are there
    torch.set_num_threads(threads)  # they have changed the default of threads that start later: set it back
    return pool


def _compute_alone() -> None:
    torch.get_num_threads()  # settles the default in this thread, which would otherwise follow and undo the next line
    torch.set_num_threads(1)
