"""`ideal detect` from files to report, against the bare backbone: ViT-S/14 at 448 px, random weights, 1024 px JPEGs.

`python -m tests.benchmarks.throughput 500` takes 500 pictures.
"""

import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealConfig, IdealImageProcessor, IdealModel
from modeling_ideal.cli import main

from ..pictures import texture, with_defect

PICTURES = 40
DIFFERENT = 8  # contents; the others have the same under other names
SIDE = 1024


class Seconds(NamedTuple):
    """How long something took."""

    cpu: float  # of all threads
    wall: float

    @classmethod
    def now(cls) -> "Seconds":
        return cls(time.process_time(), time.perf_counter())

    def __sub__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.cpu - other.cpu, self.wall - other.wall)


def prepare(folder: Path, pictures: int) -> None:
    """Write a model, references and pictures."""
    torch.manual_seed(0)
    pipe = AnomalyDetectionPipeline(model=IdealModel(IdealConfig()), image_processor=IdealImageProcessor())
    pipe.save_pretrained(folder / "model")
    spoilt, mask = with_defect(texture(SIDE, SIDE, 1), 300, 400, 90)
    references = pipe.set_references(
        normal=[texture(SIDE, SIDE, 0)], abnormal=[spoilt], masks=[mask], false_alarm=0
    )  # N1A1
    references.save(folder / "product.safetensors")
    (folder / "parts").mkdir()
    for index in range(pictures):
        path = folder / "parts" / f"{index:04}.jpg"
        if index < DIFFERENT:
            Image.fromarray(texture(SIDE, SIDE, 2 + index)).save(path, quality=92)
        else:
            os.link(folder / "parts" / f"{index % DIFFERENT:04}.jpg", path)


def detect(folder: Path, parts: Path, out: str) -> tuple[Seconds, Seconds]:
    """How long `ideal detect` takes, and the bare backbone, which runs once more for each picture, at the same time.

    On a machine that others use, they would otherwise be measured in different company.
    """
    words = ["detect", "--references", str(folder / "product.safetensors"), "--model", str(folder / "model")]
    bare, extract = [], IdealModel.extract_features

    def extract_beside(model: IdealModel, images: torch.Tensor) -> torch.Tensor:
        start = Seconds.now()
        model.backbone(images)
        bare.append(Seconds.now() - start)
        return extract(model, images)

    with contextlib.redirect_stdout(io.StringIO()), patch.object(IdealModel, "extract_features", extract_beside):
        start = Seconds.now()
        main([*words, "--out", str(folder / out), str(parts)])
        whole = Seconds.now() - start
    backbone = Seconds(*map(sum, zip(*bare, strict=True)))
    return whole - backbone, backbone


@torch.inference_mode()
def measure(pictures: int = PICTURES) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder, pictures)
        one = folder / "parts" / "0000.jpg"
        detect(folder, one, "first")  # what torch and Pillow set up once
        first, first_bare = detect(folder, one, "one")
        whole, bare = detect(folder, folder / "parts", "all")
    further, further_bare = whole - first, bare - first_bare
    figures: dict[str, float] = {"pictures": pictures}
    for kind, name in (("cpu", "s of CPU"), ("wall", "s")):
        figures[f"backbone, a picture, {name}"] = getattr(bare, kind) / pictures
        figures[f"ideal detect, in backbone forwards ({name})"] = getattr(whole, kind) / getattr(bare, kind)
        figures[f"the same beyond the first picture ({name})"] = getattr(further, kind) / getattr(further_bare, kind)
    return figures


if __name__ == "__main__":
    for label, value in measure(int(sys.argv[1])).items():
        print(f"  {label:<66} {value:10.3f}")
