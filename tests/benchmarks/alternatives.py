"""File to verdict beside what a user would pick instead: seconds of the processor in one thread, and peak memory.

ViT-S/14 with random weights, references of noise: time depends on neither. What needs anomalib runs in the environment
whose Python IDEAL_ANOMALIB names, because anomalib needs torchvision; without it, these figures are left out.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from modeling_ideal import AnomalyDetectionPipeline, IdealConfig, IdealImageProcessor, IdealModel, IdealReferences
from modeling_ideal.evaluation.cost.memory import peak_mebibytes, reset_peak
from modeling_ideal.image_inputs import load_image
from modeling_ideal.normal_variation_eraser import Deviations, nearest_normals, unit

from ..pictures import texture
from .scoring import forward

SETUPS = {"N1A1": (1, 1), "N8A4": (8, 4), "N64A8": (64, 8)}
SIDES = (448, 672)
BATCH = 8  # beside 1; only with pictures of 448 px and the references of N8A4, because it takes long
PICTURE = (768, 1024)
ROUNDS = 2  # of what takes seconds
MOST_ENCODED = {448: 12, 672: 2}  # references that are encoded again for a query, which takes even longer
AGAIN = "encoded again, plain"
SECONDS, MEMORY = "s of CPU a picture", "peak MB"
ANOMALIB = Path(__file__).with_name("_anomalib.py")

Task = Callable[[], object]


class Released(IdealModel):
    """The released implementation's way: (P, k, C) tensors, the weighted mean of the neighbours as the centre."""

    def deviations(self, patches: Tensor, normals: Tensor, directions: Tensor) -> Deviations:
        """Eq. 1-4 the obvious way; shapes as in `IdealModel.deviations`."""
        count, components, strength, _ = self.config.eraser
        cosines, places = nearest_normals(unit(patches), directions, count)
        neighbors, weights = normals[places], cosines.softmax(-1)[..., None]  # (P, k, C), (P, k, 1)
        centre = (weights * neighbors).sum(1)
        residual = patches - centre
        _, _, basis = torch.linalg.svd(weights.sqrt() * (neighbors - centre[:, None]), full_matrices=False)
        basis = basis[:, :components]  # (P, r, C)
        inside = (basis.mT @ (basis @ residual[..., None]))[..., 0]
        return Deviations(residual, residual - strength * inside, cosines[:, 0])


@torch.inference_mode()
def measure() -> dict[str, float]:
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name, f"{place}.png") for place in range(BATCH)]
        for place, file in enumerate(files):
            Image.fromarray(texture(*PICTURE, seed=place)).save(file)
        for side in SIDES:
            for labels, size, task in tasks(side, files):
                seconds, memory = cost(task, ROUNDS if size == 1 and labels[0] != AGAIN else 1)
                figures[" | ".join([*labels, SECONDS])] = seconds / size
                figures[" | ".join([*labels, MEMORY])] = memory
        if python := os.environ.get("IDEAL_ANOMALIB"):
            given = {"files": list(map(str, files)), "sides": SIDES, "rounds": ROUNDS}
            given["normals"] = {setup: counts[0] for setup, counts in SETUPS.items()}
            figures |= with_anomalib(python, given)
    return figures


def cost(task: Task, rounds: int) -> tuple[float, float]:
    """Least seconds of the processor of some rounds, and peak memory of the process."""
    reset_peak()
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        task()
        seconds.append(time.process_time() - start)
    return min(seconds), peak_mebibytes()


def tasks(side: int, files: list[Path]) -> Iterator[tuple[list[str], int, Task]]:
    """What is measured at one side of pictures: labels, number of pictures and the task."""
    torch.manual_seed(0)
    processor, model = IdealImageProcessor(size=side), IdealModel(IdealConfig(image_size=side))
    released = Released(IdealConfig(image_size=side, residual_anchor="centroid", alignment="euclidean"))
    pipe = AnomalyDetectionPipeline(model=model, image_processor=processor)

    def pixels(parts: list[Path]) -> Tensor:
        return processor(query=[load_image(file, file.name) for file in parts], return_tensors="pt")["query"]

    def judged(references: IdealReferences, parts: list[Path]) -> Task:
        return lambda: pipe([str(part) for part in parts], references=references, batch_size=len(parts))

    forward(model, pixels(files[:1]))  # warms up
    wide = [("N8A4", files)] if side == min(SIDES) else []
    for parts in [files[:1], *(parts for _, parts in wide)]:
        backbone = partial(lambda parts: forward(model, pixels(parts)), parts)
        yield ["backbone alone", f"{side} px", "none", f"batch {len(parts)}"], len(parts), backbone
    for setup, parts in [*((setup, files[:1]) for setup in SETUPS), *wide]:
        counts, labels = SETUPS[setup], [f"{side} px", setup, f"batch {len(parts)}"]
        yield ["ours", *labels], len(parts), judged(noise_references(model, *counts), parts)
        yield ["nearest neighbour alone", *labels], len(parts), judged(noise_references(model, counts[0], 0), parts)
        if len(parts) == 1 and sum(counts) <= MOST_ENCODED[side]:
            images = noise_images(side, *counts)
            again = partial(lambda images: released(pixels(files[:1]), *images), images)
            yield [AGAIN, *labels], 1, again


def noise_references(model: IdealModel, num_normal: int, num_abnormal: int) -> IdealReferences:
    """Encoded references of noise in the place of features; they are marked in a fifth of their height and width."""
    patches = model.config.image_size // model.config.patch_size[0]
    shape = (patches, patches, model.config.hidden_size)
    normal, abnormal, marked = torch.randn(1, num_normal, *shape), None, None
    if num_abnormal:
        abnormal = torch.randn(1, num_abnormal, *shape)
        marked = torch.zeros(1, num_abnormal, patches, patches, dtype=torch.bool)
        marked[..., : patches // 5, : patches // 5] = True
    references = model.encode_features(normal, abnormal, marked)
    references.fingerprint = model.fingerprint
    return references


def noise_images(side: int, num_normal: int, num_abnormal: int) -> tuple[Tensor, Tensor, Tensor]:
    """Reference images of noise, with masks of a fifth of their height and width."""
    masks = torch.zeros(num_abnormal, side, side)
    masks[:, : side // 5, : side // 5] = 1
    return torch.randn(num_normal, 3, side, side), torch.randn(num_abnormal, 3, side, side), masks


def with_anomalib(python: str, given: dict) -> dict[str, float]:
    """The figures of anomalib's models, measured by another Python."""
    done = subprocess.run([python, ANOMALIB, json.dumps(given)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def draw(figures: dict[str, float], out: Path) -> None:
    """Draw how seconds and memory grow with references, for each side of pictures, at batch 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.4), layout="constrained")
    for column, side in enumerate(SIDES):
        for row, unit_name in enumerate((SECONDS, MEMORY)):
            axes = figure.add_subplot(2, len(SIDES), row * len(SIDES) + column + 1)
            lines: dict[str, dict[int, float]] = {}
            for label, value in figures.items():
                way, pixels, setup, batch, what = label.split(" | ")
                if (pixels, batch, what) == (f"{side} px", "batch 1", unit_name):
                    setups = SETUPS if setup == "none" else [setup]
                    lines.setdefault(way, {}).update({sum(SETUPS[each]): value for each in setups})
            for way, values in lines.items():
                axes.plot(list(values), list(values.values()), marker="o", label=way)
            axes.set(xscale="log", yscale="log", title=f"{side} px", ylabel=unit_name)
            axes.set_xticks([sum(counts) for counts in SETUPS.values()], list(SETUPS))
            axes.minorticks_off()
            axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    figure.savefig(out)


if __name__ == "__main__":  # the plot of figures in a file: figures.json, plot.svg
    draw(json.loads(Path(sys.argv[1]).read_text())["alternatives"], Path(sys.argv[2]))
