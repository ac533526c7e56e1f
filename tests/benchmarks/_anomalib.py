"""Measures PatchCore and PaDiM of anomalib with their own backbones and random weights; prints the figures as JSON.

It runs in an environment with anomalib, which need not have this package: see alternatives.py.
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

# Where torch has no CUDA and torchvision has, importing the latter fails for want of operators that nobody uses here.
library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from anomalib.models.image.padim.torch_model import PadimModel  # noqa: E402
from anomalib.models.image.patchcore.torch_model import PatchcoreModel  # noqa: E402

CORESET = 0.1  # the share of patches that PatchCore keeps by default


def pixels(files, side):
    images = [
        np.asarray(Image.open(file).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)) for file in files
    ]
    return (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255 - 0.45) / 0.225


def verdicts(model, files, side):
    found = model(pixels(files, side))
    sizes = [Image.open(file).size[::-1] for file in files]
    maps = zip(found.anomaly_map.split(1), sizes, strict=True)
    return found.pred_score.tolist(), [torch.nn.functional.interpolate(each, size) for each, size in maps]


def memory():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def cost(model, files, side, rounds):
    Path("/proc/self/clear_refs").write_text("5")
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        verdicts(model, files, side)
        seconds.append(time.process_time() - start)
    return min(seconds) / len(files), memory()


def models(side, normals):
    """Each model with its references, of noise: name, set-up and model."""
    patchcore = PatchcoreModel(layers=["layer2", "layer3"], pre_trained=False).eval()
    for setup, count in normals.items():
        patchcore.memory_bank = torch.randn(int(CORESET * count * (side // 8) ** 2), 1536)
        yield "anomalib's PatchCore", setup, patchcore
    padim = PadimModel(pre_trained=False).eval()
    places = (side // 4) ** 2
    padim.gaussian.mean = torch.randn(100, places)
    padim.gaussian.inv_covariance = torch.eye(100).expand(places, 100, 100).clone()
    yield "anomalib's PaDiM", "none", padim


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    given, figures = json.loads(sys.argv[1]), {}
    with torch.inference_mode():
        for side in given["sides"]:
            for name, setup, model in models(side, given["normals"]):
                wide = side == given["sides"][0] and setup in ("N8A4", "none")
                for size in (1, len(given["files"])) if wide else (1,):
                    seconds, peak = cost(model, given["files"][:size], side, given["rounds"] if size == 1 else 1)
                    labels = f"{name} | {side} px | {setup} | batch {size}"
                    figures |= {f"{labels} | s of CPU a picture": seconds, f"{labels} | peak MB": peak}
    print(json.dumps(figures))


main()
