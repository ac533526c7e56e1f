"""Times and memory that can be compared on a noisy machine."""

import re
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

CLEAR_REFS = Path("/proc/self/clear_refs")  # Linux alone has it
FORGET_PEAK = "5"


def interleaved_medians(tasks: Mapping[Name, Callable[[], object]], rounds: int) -> dict[Name, float]:
    """Median seconds of each task, all tasks taking turns, so that noise and clock changes hit them alike."""
    seconds: dict[Name, list[float]] = {name: [] for name in tasks}
    for round_number in range(rounds + 1):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if round_number:  # the first one warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def reset_peak() -> None:
    """Make the kernel forget this process's peak memory; OSError on other systems than Linux."""
    CLEAR_REFS.write_text(FORGET_PEAK)


def peak_mebibytes() -> float:
    """The most memory this process has held at once since `reset_peak`, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("/proc/self/status: expected a line VmHWM, got none")
    return int(found[1]) / 1024
