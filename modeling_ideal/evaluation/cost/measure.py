"""What a model costs: parameters, operations, frames a second, memory (the paper's Table 3, right)."""

import argparse
import json
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
from ...training.head.starting_point import model_on_backbone
from ...writing.tables import ABSENT, markdown_table, number
from ..report.paper import COST
from .timing import interleaved_medians
from .workload import Workload, noise, peak_memory

ONCE, EVERY_TIME = "references_once", "references_every_time"
WAYS = {ONCE: "encoded once", EVERY_TIME: "encoded for every query"}
HEAD = (
    *("model", "set-up", "references"),
    *("parameters, M", "trained, M", "FLOPs, 10^10", "frames a second", "peak memory, MiB"),
)


def cost(arguments: argparse.Namespace) -> str:
    """`ideal cost`: measure the models that the arguments name; a Markdown table, or JSON."""
    models: dict[str, IdealModel] = {}
    for folder in arguments.model or [arguments.backbone]:
        name = Path(folder).name
        if name in models:
            raise ValueError(f"expected models of different names, got {name!r} twice")
        if arguments.model:
            models[name] = IdealModel.from_pretrained(folder)
        else:
            models[name] = model_on_backbone(folder, arguments.stage, arguments.no_norm)
    measured = measure_cost(models, arguments.setups, arguments.rounds)
    return json.dumps(measured, indent=2) if arguments.json else cost_table(measured)


def measure_cost(models: Mapping[str, IdealModel], setups: Sequence[str] = ("N1A1",), rounds: int = 15) -> dict:
    """Measure models against each other, all in turns.

    One query at a time, of the image size in each model's configuration, on the device that the model is on. The
    pictures are noise; reading and resizing them is not counted.

    - `flops`: of matrix products, convolutions and attention, two for a multiply-add, as `FlopCounterMode` counts. It
      does not see what else there is: eigenvectors, top-k, sums over neighbours, normalisation, element-wise work.
    - `frames_per_second`: 1 / median seconds.
    - `peak_mebibytes`: the most that a process of its own holds while it scores on the CPU, Python, torch and the
      weights included; None on other systems than Linux.

    Args:
        models: by the names they are to have in the table.
        setups: for example `["N1A1", "N8A4"]`.
        rounds: how often everything is timed.

    Returns:
        `{"machine": ..., "models": {name: {"device", "image_size", "parameters", "trained_parameters", "setups":
        {setup: {way: {"flops", "frames_per_second", "peak_mebibytes"}}}}}}`, where a way is `"references_once"`,
        encoded before the query comes, or `"references_every_time"`, encoded again for it.
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
    """Floating-point operations of the matrix products, convolutions and attention of a call."""
    # The counter does not know the fused attention of a CPU and would leave it out; it does know the plain one. It
    # stumbles over views of trained weights without gradients.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # it sees what the calling thread does, and no other
    try:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            task()
    finally:
        torch.set_num_threads(threads)
    return counter.get_total_flops()


def cost_table(measured: dict) -> str:
    """What `measure_cost` found as a Markdown table, the paper's rows last, and below what it means."""
    rows = []
    for name, model in measured["models"].items():
        sizes = [number(model[key] / 1e6, 2) for key in ("parameters", "trained_parameters")]
        for setup, ways in model["setups"].items():
            for way, figures in ways.items():
                speed = [number(figures["flops"] / 1e10, 2), number(figures["frames_per_second"], 2)]
                rows.append([name, setup, WAYS[way], *sizes, *speed, number(figures["peak_mebibytes"], 0)])
    for name, theirs in COST.items():
        speed = [number(theirs.flops_1e10, 2), number(theirs.frames_per_second, 2)]
        rows.append([f"{name}, paper", ABSENT, ABSENT, number(theirs.parameters_millions, 2), ABSENT, *speed, ABSENT])
    machine = measured["machine"]
    sides = sorted({model["image_size"] for model in measured["models"].values()})
    notes = (
        f"One query at a time of {' and '.join(f'{side} x {side}' for side in sides)} pixels, without reading and "
        f"resizing it; {machine['processor']}, {machine['threads']} thread(s), torch {machine['torch']}, medians of "
        f"{machine['rounds']} round(s). FLOPs of matrix products, convolutions and attention, two a multiply-add; "
        "eigenvectors, top-k and element-wise work are not counted. Peak memory of a whole process on the CPU, with "
        "Python, torch and the weights. The paper names an RTX 3090; the set-up, how often it encoded the "
        "references, and what it counts as a FLOP, it does not say."
    )
    return f"{markdown_table(HEAD, rows, words=3)}\n\n{notes}"


def _tasks(model: IdealModel, workload: Workload) -> dict[str, Callable[[], object]]:
    """Scoring the query either way; reading the score waits for a device that works on its own."""
    references = model.encode_references(*workload[1:])

    return {
        ONCE: lambda: model(workload.query, references=references).scores.tolist(),
        EVERY_TIME: lambda: model(*workload).scores.tolist(),
    }


def _peaks(model: IdealModel, setups: Mapping[str, Setup]) -> dict[tuple[str, str], float | None]:
    """Peak memory of every set-up and way, each in a process of its own."""
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        folder, references = Path(name), Path(name, "references.safetensors")
        model.save_pretrained(folder)
        for setup, counts in setups.items():
            # Not encoded in the process that is measured: what is freed there may still count as held.
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
