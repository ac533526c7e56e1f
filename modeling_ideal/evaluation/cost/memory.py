"""The peak memory of this process, as Linux reports it."""

import re
from pathlib import Path

CLEAR_REFS = Path("/proc/self/clear_refs")  # on Linux only
FORGET_PEAK = "5"


def reset_peak() -> None:
    """Make the kernel forget this process's peak memory; OSError on systems other than Linux."""
    CLEAR_REFS.write_text(FORGET_PEAK)


def peak_mebibytes() -> float:
    """The peak memory of this process since `reset_peak`, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("/proc/self/status: expected a line VmHWM, got none")
    return int(found[1]) / 1024
