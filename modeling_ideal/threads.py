"""Parallel work on the cores of a CPU, one part of the data per thread.

torch divides every single operation among its threads. A sequence of many small operations gains little from that,
because all threads wait for each other after each one. Here, each thread takes its part of the data through all of
them instead.
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


@torch.compiler.disable  # torch.compile cannot trace a pool of threads
def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part], device: torch.device) -> list[Result]:
    """Apply a function to every part; on a CPU in as many threads as torch uses, each without further threads.

    Thread-local state of torch (gradient mode, autocast, dispatch modes) has its default values in the threads.
    """
    workers = torch.get_num_threads()
    if device.type != "cpu" or workers == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    return list(_pool(os.getpid(), workers).map(function, parts))


@cache
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    """One pool per process, because a forked child has none of its parent's threads."""
    return lone_threads(workers)


def lone_threads(count: int) -> ThreadPoolExecutor:
    """Make a pool of threads in which torch uses a single thread, so that they do not wait for others."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, thread_name_prefix="ideal", initializer=_compute_alone)
    everyone = Barrier(count)
    list(pool.map(lambda _: everyone.wait(), range(count)))  # waits until all have started
    torch.set_num_threads(threads)  # restore the default for new threads, which they have changed
    return pool


def _compute_alone() -> None:
    torch.get_num_threads()  # sets the default in this thread now; otherwise that would undo the next line
    torch.set_num_threads(1)
