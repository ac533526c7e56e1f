"""`ideal detect` from files to report, against the bare backbone: ViT-S/14 at 448 px, random weights, 1024 px JPEGs.

`python -m tests.benchmarks.throughput 500` takes 500 pictures.
"""

import contextlib
import io
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from transformers import AutoModel

from modeling_ideal import AnomalyDetectionPipeline, IdealConfig, IdealImageProcessor, IdealModel
from modeling_ideal.cli import main
from modeling_ideal.threads import lone_threads

from ..pictures import texture, with_defect
from .scoring import forward

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


def detect(folder: Path, parts: Path, out: str) -> Seconds:
    """How long `ideal detect` takes, the loading of the model included."""
    words = ["detect", "--references", str(folder / "product.safetensors"), "--model", str(folder / "model")]
    with contextlib.redirect_stdout(io.StringIO()):
        start = Seconds.now()
        main([*words, "--out", str(folder / out), str(parts)])
        return Seconds.now() - start


def forwards(model: IdealModel, images: list[torch.Tensor], count: int) -> Seconds:
    """How long the bare backbone takes for so many pictures, one after another, on all of torch's threads."""
    start = Seconds.now()
    for index in range(count):
        forward(model, images[index % len(images)])
    return Seconds.now() - start


def forwards_by_core(model: IdealModel, images: list[torch.Tensor], count: int) -> Seconds:
    """The same with a picture for each core, as `ideal detect` has it."""
    encode = torch.inference_mode()(partial(forward, model))
    with lone_threads(torch.get_num_threads()) as pool:
        start = Seconds.now()
        list(pool.map(encode, (images[index % len(images)] for index in range(count))))
        return Seconds.now() - start


def forwards_of_torch(model: IdealModel, images: list[torch.Tensor], count: int) -> Seconds:
    """The same as `forwards`, with the products of torch alone; on most processors there is no difference."""
    start = Seconds.now()
    for index in range(count):
        model.backbone(images[index % len(images)])
    return Seconds.now() - start


BARE = (forwards, forwards_by_core, forwards_of_torch)


@torch.inference_mode()
def measure(pictures: int = PICTURES) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder, pictures)
        model = AutoModel.from_pretrained(folder / "model", trust_remote_code=True)
        files = [folder / "parts" / f"{index:04}.jpg" for index in range(DIFFERENT)]
        images = [IdealImageProcessor()(query=str(file))["query"] for file in files]
        forwards(model, images, 2)
        detect(folder, files[0], "first")  # what torch and Pillow set up once
        one = detect(folder, files[0], "one")
        halves = (pictures // 2, pictures - pictures // 2)
        # Half before and half after: on a machine that others use, all are then measured in much the same company.
        before = [bare(model, images, halves[0]) for bare in BARE]
        whole = detect(folder, folder / "parts", "all")
        after = [bare(model, images, halves[1]) for bare in BARE]
    bare, by_core, plain = (Seconds(*map(sum, zip(*parts, strict=True))) for parts in zip(before, after, strict=True))
    further = whole - one
    figures: dict[str, float] = {"pictures": pictures}
    for kind, name in (("cpu", "s of CPU"), ("wall", "s")):
        figures[f"backbone, a picture, {name}"] = getattr(bare, kind) / pictures
        figures[f"ideal detect, in backbone forwards ({name})"] = getattr(whole, kind) / getattr(bare, kind)
        rest = getattr(further, kind) * pictures / (pictures - 1)
        figures[f"the same beyond the first picture ({name})"] = rest / getattr(bare, kind)
        figures[f"the same in forwards with a picture for each core ({name})"] = rest / getattr(by_core, kind)
        figures[f"the same in forwards by the products of torch alone ({name})"] = rest / getattr(plain, kind)
    return figures


if __name__ == "__main__":
    for label, value in measure(int(sys.argv[1])).items():
        print(f"  {label:<66} {value:10.3f}")
