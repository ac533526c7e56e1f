"""The most memory that this process has held, as Linux tells it."""

import re
from pathlib import Path

CLEAR_REFS = Path("/proc/self/clear_refs")  # Linux alone has it
FORGET_PEAK = "5"


def reset_peak() -> None:
    """Make the kernel forget this process's peak memory; OSError on other systems than Linux."""
    CLEAR_REFS.write_text(FORGET_PEAK)


def peak_mebibytes() -> float:
    """The most memory this process has held at once since `reset_peak`, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("/proc/self/status: expected a line VmHWM, got none")
    return int(found[1]) / 1024
