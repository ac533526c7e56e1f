"""What is written, each as a job that writes version after version, and a check of what a kill has left."""

import contextlib
import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import datasets
import torch
from PIL import Image
from safetensors.torch import load_file

from hub.build import build
from hub.files import MODEL_CARD, read_record
from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel, IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.data import load_records
from modeling_ideal.data.feature_cache import encode_records
from modeling_ideal.detection.log import read_log
from modeling_ideal.evaluation.results_file import read_results
from modeling_ideal.training.head.checkpoints import Checkpoints, Progress
from modeling_ideal.writing.files import write_atomically, write_json

from ..conftest import PATCH, tiny_model
from ..data.toy_encoder import ToyEncoder
from ..pictures import photograph

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "mpdd" / "results.json"
PICTURES = 6


class Kind(NamedTuple):
    """One kind of file.

    Args:
        prepare: makes what the job needs in an empty folder.
        write: writes version `number`, from 1 on.
        check: AssertionError or another error unless what is there is version `last` or the one after it; 0 if none
            was ever completed.
        end: does the work once more, undisturbed, and checks that nothing is lost.
    """

    prepare: Callable[[Path], None]
    write: Callable[[Path, int], None]
    check: Callable[[Path, int], None]
    end: Callable[[Path, int], None]


def nothing(_: Path, last: int = 0) -> None:
    """There is nothing to do."""


def visible(folder: Path) -> list[str]:
    """The names of the files in a folder that people see."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def write_references(folder: Path, number: int) -> None:
    features = torch.full((30_000, 16), float(number))
    IdealReferences(normal_features=[features], num_normal=1).save(folder / "nut.safetensors")


def check_references(folder: Path, last: int) -> None:
    assert visible(folder) == ["nut.safetensors"]
    [features] = IdealReferences.load(folder / "nut.safetensors").normal_features
    assert features.shape == (30_000, 16)
    assert features.unique().tolist() in ([last], [last + 1])


def write_checkpoint(folder: Path, number: int) -> None:
    weights = torch.full((500, 500), float(number))
    Checkpoints(folder, 2, "source").save(Progress(number), {"weight": weights}, {"state": weights})


def check_checkpoint(folder: Path, last: int) -> None:
    loaded = Checkpoints(folder, 2, "source").load(torch.device("cpu"))
    assert loaded is not None
    progress, head, optimizer = loaded
    assert progress.step in (last, last + 1)
    assert head["weight"].unique().tolist() == optimizer["state"].unique().tolist() == [progress.step]


def prepare_pictures(folder: Path) -> None:
    for index in range(PICTURES):
        place = folder / "parts" / ("normal" if index else "abnormal")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(index, (32, 32))).save(place / f"{index}.png")


@cache
def records_in(folder: Path) -> datasets.Dataset:
    with mock.patch("datasets.config.HF_DATASETS_CACHE", folder / "datasets"):
        return load_records(folder / "parts", layout="folder")


def write_features(folder: Path, number: int) -> None:
    encode_records(records_in(folder), ToyEncoder(str(number)), folder / "cache", batch_size=1, progress=False)


def check_features(folder: Path, last: int) -> None:
    for file in (folder / "cache").rglob("[!.]*.safetensors"):
        assert "features" in load_file(file)
    encoder, records = ToyEncoder(str(last + 1)), records_in(folder)
    found = encode_records(records, encoder, folder / "cache", progress=False).features(range(PICTURES))
    assert torch.equal(found, ToyEncoder()([row["image"] for row in records]).half())


def write_results(folder: Path, number: int) -> None:
    content = json.loads(RESULTS.read_text())
    write_json(folder / "results.json", {**content, "seeds": [number]})


def check_results(folder: Path, last: int) -> None:
    assert read_results(folder / "results.json")["seeds"] in ([last], [last + 1])


def prepare_line(folder: Path) -> None:
    prepare_pictures(folder)
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    pipe = AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor)
    pipe.save_pretrained(folder / "model")
    pipe.encode_references(normal=[photograph(90)], false_alarm=0).save(folder / "nut.safetensors")
    (folder / "camera").mkdir()


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Run `ideal` with the model and the references of a line; returns the exit code and what was said of errors."""
    told = io.StringIO()
    given = ["--references", str(folder / "nut.safetensors"), "--model", str(folder / "model"), "--device", "cpu"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        return main([words[0], *given, *words[1:]]), told.getvalue()


def write_detection(folder: Path, _: int, out: str = "found") -> None:
    code, told = run(folder, "detect", str(folder / "parts"), "--out", str(folder / out))
    assert code in (0, 1), told


def check_detection(folder: Path, _: int, out: str = "found") -> None:
    found = folder / out
    if not (found / "results.json").exists():
        return  # of the very first run
    content = json.loads((found / "results.json").read_text())
    for entry in [*content["images"], *read_log(found / "results.jsonl")]:
        with Image.open(found / entry["overlay"]) as overlay:
            overlay.load()
    if (found / "results.csv").exists():
        with open(found / "results.csv", newline="") as stream:
            assert all(len(row) == 10 for row in csv.reader(stream))
    if (found / "report.html").exists():
        assert (found / "report.html").read_text().rstrip().endswith("</html>")


def end_detection(folder: Path, last: int, out: str = "found") -> None:
    write_detection(folder, last, out)
    content = json.loads((folder / out / "results.json").read_text())
    assert content["complete"]
    assert len(content["images"]) == PICTURES


def write_shares(folder: Path, number: int) -> None:
    """As two processes do, one after another; the first of them gathers what both have judged."""
    for rank in (1, 0):
        with mock.patch.dict(os.environ, {"RANK": str(rank), "WORLD_SIZE": "2"}):
            write_detection(folder, number, "shared")


def check_shares(folder: Path, last: int) -> None:
    shares = folder / "shared.shares"
    for log in shares.glob("*.jsonl"):
        for entry in read_log(log)[1:]:
            with Image.open(shares / "overlays" / f"{Path(entry['image']).stem}.png") as overlay:
                overlay.load()
    check_detection(folder, last, "shared")


def end_shares(folder: Path, last: int) -> None:
    write_shares(folder, last)
    end_detection(folder, last, "shared")
    assert not (folder / "shared.shares").exists()


def write_build(folder: Path, number: int) -> None:
    card = folder / "card.md"
    write_atomically(card, f"{MODEL_CARD.read_text()}\n<!-- version {number} -->\n".encode())
    with mock.patch("hub.build.verify"):  # which takes long, and writes nothing
        build(folder / "model", folder / "built", card=card, overwrite=True)


def check_build(folder: Path, last: int) -> None:
    read_record(folder / "built")  # every file as it was written
    IdealModel.from_pretrained(folder / "built")
    card = (folder / "built" / "README.md").read_text()
    assert card.rstrip().endswith((f"version {last} -->", f"version {last + 1} -->"))


def write_watched(folder: Path, number: int) -> None:
    content = io.BytesIO()
    Image.fromarray(photograph(number)).save(content, "PNG")
    write_atomically(folder / "camera" / f"{number:04}.png", content.getvalue())
    seconds = ["--interval", "0.02", "--grace", "0.02", "--report-every", "0.01"]
    code, told = run(folder, "watch", str(folder / "camera"), "--out", str(folder / "watched"), "--once", *seconds)
    assert code in (0, 1), told


def check_watched(folder: Path, last: int) -> None:
    entries = read_log(folder / "watched" / "results.jsonl")
    counts = Counter(entry["image"] for entry in entries)
    assert set(counts.values()) <= {1}
    assert counts.keys() >= {f"{number:04}.png" for number in range(1, last + 1)}
    for entry in entries:
        with Image.open(folder / "watched" / entry["overlay"]) as overlay:
            overlay.load()


def end_watched(folder: Path, last: int) -> None:
    write_watched(folder, last + 2)
    names = {entry["image"] for entry in read_log(folder / "watched" / "results.jsonl")}
    assert names == {*visible(folder / "camera")}  # a camera that is killed leaves hidden files


KINDS = {
    "references": Kind(nothing, write_references, check_references, nothing),
    "checkpoints": Kind(nothing, write_checkpoint, check_checkpoint, nothing),
    "features": Kind(prepare_pictures, write_features, check_features, nothing),
    "evaluation": Kind(nothing, write_results, check_results, nothing),
    "detection": Kind(prepare_line, write_detection, check_detection, end_detection),
    "shares": Kind(prepare_line, write_shares, check_shares, end_shares),
    "build": Kind(prepare_line, write_build, check_build, nothing),
    "watching": Kind(prepare_line, write_watched, check_watched, end_watched),
}
