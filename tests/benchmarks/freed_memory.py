"""What it costs that the C library gives memory back after each operation, and asks for it again: one thread, N1A1.

glibc alone reads KEPT from the environment, when a process starts. ViT-S/14 at 448 px, random weights and references
of noise, on neither of which time depends; seconds of the processor and page faults of a scored picture.
"""

import json
import os
import resource
import subprocess
import sys
import time

import torch

from .alternatives import noise_references
from .scoring import build

KEPT = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}  # 32 MB is the most that it takes
ROUNDS = 2  # of both in turns
PICTURES = 5


def measure() -> dict[str, float]:
    given, kept = ({**os.environ}, {**os.environ, **KEPT})
    results = [[_in_a_process(environment) for environment in (given, kept)] for _ in range(ROUNDS)]
    before, after = (tuple(map(min, zip(*each, strict=True))) for each in zip(*results, strict=True))
    return {
        "a picture, CPU ms": 1e3 * before[0],
        "the same with freed memory kept": 1e3 * after[0],
        "by the former": after[0] / before[0],
        "page faults a picture": before[1],
        "the same with freed memory kept, faults": after[1],
    }


def _in_a_process(environment: dict[str, str]) -> tuple[float, float]:
    command = [sys.executable, "-m", __name__]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seconds, faults = json.loads(result.stdout.splitlines()[-1])
    return seconds, faults


@torch.inference_mode()
def _scored() -> tuple[float, float]:
    """Least seconds, and page faults on average."""
    torch.set_num_threads(1)
    model, image = build()
    references = noise_references(model, 1, 1)
    for _ in range(2):
        model(image, references=references)
    seconds, faults = [], resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(PICTURES):
        started = time.process_time()
        model(image, references=references)
        seconds.append(time.process_time() - started)
    return min(seconds), (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / PICTURES


if __name__ == "__main__":
    print(json.dumps(_scored()))
