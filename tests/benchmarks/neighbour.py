"""What scoring adds to the backbone, alone and beside a process that keeps a core busy: one thread, and all threads.

On the clock, and in seconds of the processor, which hardly depend on company. As in scoring.py: ViT-S/14 at 448 px,
batch 1, random weights, and references of noise, on neither of which time depends.

`python -m tests.benchmarks.neighbour 2` takes 2 rounds.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from modeling_ideal import IdealModel
from modeling_ideal.evaluation.cost.timing import interleaved_medians

from .alternatives import SETUPS, noise_references
from .scoring import SIDE, build, forward

MEASURED = ("N1A1", "N8A4")
ROUNDS = 9
CLOCKS = {"s": time.perf_counter, "s of CPU": time.process_time}
BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # and ends with the one that started it


@torch.inference_mode()
def measure(rounds: int = ROUNDS) -> dict[str, float]:
    model, image = build()
    everywhere, figures = torch.get_num_threads(), {}
    for threads in sorted({1, everywhere}):
        torch.set_num_threads(threads)
        for neighbours in (0, 1):
            with busy(neighbours):
                for unit, ratios in in_backbones(model, image, rounds).items():
                    company = "a busy neighbour" if neighbours else "no neighbour of ours"
                    figures |= {f"{name}, {threads} thread(s), {company} ({unit})": ratios[name] for name in ratios}
    torch.set_num_threads(everywhere)
    return figures


@contextmanager
def busy(neighbours: int) -> Iterator[None]:
    """So many processes that each keep a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(neighbours)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def in_backbones(model: IdealModel, image: torch.Tensor, rounds: int) -> dict[str, dict[str, float]]:
    """The whole call, and what comes after the backbone alone, in forwards of the backbone, by each clock."""
    features = model.extract_features(image)
    tasks = {"backbone": lambda: forward(model, image)}
    for name in MEASURED:
        references = noise_references(model, *SETUPS[name])
        tasks |= {
            f"{name} scored": lambda references=references: model(image, references=references),
            f"{name} after the backbone": lambda references=references: model.score_features(
                features, references, (SIDE, SIDE)
            ),
        }
    ratios = {}
    for unit, clock in CLOCKS.items():
        seconds = interleaved_medians(tasks, rounds, clock)
        backbone = seconds.pop("backbone")
        ratios[unit] = {name: value / backbone for name, value in seconds.items()}
    return ratios


if __name__ == "__main__":
    for label, value in measure(int(sys.argv[1])).items():
        print(f"  {label:<66} {value:10.3f}")
