"""A job that is killed at random moments, in a process of its own each time."""

import contextlib
import multiprocessing
import random
import signal
import time
import warnings
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from .kinds import Kind

PATIENCE = 300  # seconds, until something is written; a slow machine starts slowly


def kill_again_and_again(kind: Kind, folder: Path, kills: int, seed: int) -> int:
    """Start the job of a kind, kill it, look at what it left, and so on; returns how many versions were written.

    Args:
        kind: what is written.
        folder: an empty folder.
        kills: how often.
        seed: of the moments.
    """
    moments, last = random.Random(seed), 0  # noqa: S311 - no secret
    kind.prepare(folder)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.kinds"])  # a process then starts at once
    for _ in range(kills):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(kind.write, folder, last + 1, theirs))
        process.start()
        theirs.close()
        try:
            if not ours.poll(PATIENCE):
                raise AssertionError(f"nothing was written in {PATIENCE} seconds")
            last, seconds = ours.recv()  # EOFError if the job has failed, and said why
            time.sleep(moments.uniform(0, 2 * seconds))
        finally:
            process.kill()
            process.join()
        with contextlib.suppress(EOFError):
            while ours.poll():
                last, _ = ours.recv()
        if process.exitcode != -signal.SIGKILL:
            raise AssertionError(f"the job ended by itself, with exit code {process.exitcode}")
        kind.check(folder, last)
    kind.end(folder, last)
    return last


def work(write: Callable[[Path, int], None], folder: Path, first: int, connection: Connection) -> None:
    """Write version after version, and say so after each."""
    warnings.simplefilter("ignore")
    for number in count(first):
        started = time.monotonic()
        write(folder, number)
        connection.send((number, time.monotonic() - started))
