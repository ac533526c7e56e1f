"""Measures what models cost, all in turns, so that they can be compared on a noisy machine."""

import math
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ...data.setups import Setup
from ...modeling_ideal import IdealModel
from .table import EVERY_TIME, ONCE
from .timing import interleaved_medians
from .workload import Workload, noise, peak_memory


def measure_cost(models: Mapping[str, IdealModel], setups: Sequence[str] = ("N1A1",), rounds: int = 15) -> dict:
    """Measure models against each other, all in turns.

    Each scores one query at a time, of the image size in its configuration, on the device that it is on. The pictures
    are noise; reading and resizing them is not counted.

    - `flops`: matrix products, convolutions and attention, two for a multiply-add, as `FlopCounterMode` counts. It
      does not count eigenvectors, top-k, sums over neighbours, normalisation and element-wise work.
    - `frames_per_second`: 1 / median seconds.
    - `peak_mebibytes`: the peak memory of a separate process that scores on the CPU, with Python, torch and the
      weights; None on systems other than Linux.

    Args:
        models: by their names in the table.
        setups: for example `["N1A1", "N8A4"]`.
        rounds: how often everything is timed.

    Returns:
        `{"machine": ..., "models": {name: {"device", "image_size", "parameters", "trained_parameters", "setups":
        {setup: {way: {"flops", "frames_per_second", "peak_mebibytes"}}}}}}`, where a way is `"references_once"`,
        encoded before the query, or `"references_every_time"`, encoded again for it.
    """
    if not models or not setups:
        raise ValueError(f"expected at least one model and one set-up, got {list(models)} and {list(setups)}")
    if rounds < 1:
        raise ValueError(f"rounds: expected at least 1, got {rounds}")
    parsed = {setup: Setup.parse(setup) for setup in setups}
    tasks = {
        (name, setup, way): task
        for name, model in models.items()
        for setup, counts in parsed.items()
        for way, task in _tasks(model, noise(model, counts.num_normal, counts.num_abnormal)).items()
    }
    flops = {place: count_flops(task) for place, task in tasks.items()}
    with torch.no_grad():
        seconds = interleaved_medians(tasks, rounds)
    peaks = {(name, *place): peak for name, model in models.items() for place, peak in _peaks(model, parsed).items()}
    result: dict[str, Any] = {"machine": _machine(rounds), "models": {}}
    for name, model in models.items():
        result["models"][name] = {
            "device": model.device.type,
            "image_size": model.config.image_size,
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "trained_parameters": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
            "setups": {setup: {} for setup in setups},
        }
    for name, setup, way in tasks:
        result["models"][name]["setups"][setup][way] = {
            "flops": flops[name, setup, way],
            "frames_per_second": 1 / seconds[name, setup, way],
            "peak_mebibytes": peaks[name, setup, way],
        }
    return result


def count_flops(task: Callable[[], object]) -> int:
    """Floating-point operations in the matrix products, convolutions and attention of a call."""
    # The counter knows the plain attention, but not the fused one of a CPU. It fails on views of trained weights
    # without gradients.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # it only sees the calling thread
    try:
        more = {torch.ops.mkldnn._linear_pointwise: _product_flops} if torch.backends.mkldnn.is_available() else {}
        counter = FlopCounterMode(display=False, custom_mapping=more)
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            task()
    finally:
        torch.set_num_threads(threads)
    return counter.get_total_flops()


def _product_flops(vectors: Sequence[int], weight: Sequence[int], *_: object, **__: object) -> int:
    """Of vectors (..., C) times the transpose of weight (Q, C), given their shapes: see `matrix_products.py`."""
    return 2 * math.prod(vectors) * weight[0]


def _tasks(model: IdealModel, workload: Workload) -> dict[str, Callable[[], object]]:
    """Score the query either way; reading the score waits for a device that computes asynchronously."""
    references = model.encode_references(*workload[1:])

    return {
        ONCE: lambda: model(workload.query, references=references).scores.tolist(),
        EVERY_TIME: lambda: model(*workload).scores.tolist(),
    }


def _peaks(model: IdealModel, setups: Mapping[str, Setup]) -> dict[tuple[str, str], float | None]:
    """Peak memory for every set-up and way, each in a separate process."""
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        folder, references = Path(name), Path(name, "references.safetensors")
        model.save_pretrained(folder)
        for setup, counts in setups.items():
            # Not encoded in the process that is measured: memory that is freed there may still count.
            _, *images = noise(model, counts.num_normal, counts.num_abnormal)
            model.encode_references(*images).save(references)
            for way, file in ((ONCE, references), (EVERY_TIME, None)):
                peaks[setup, way] = peak_memory(folder, counts.num_normal, counts.num_abnormal, file)
    return peaks


def _machine(rounds: int) -> dict[str, Any]:
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rounds": rounds,
    }
