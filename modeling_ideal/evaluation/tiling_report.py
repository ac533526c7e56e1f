"""Small defects in large scenes: in tiles, and in the resized picture.

python -m modeling_ideal.evaluation.tiling_report --model ideal-tiny --target DIR --out FILE.md

A scene is a square of good parts of one category, as a camera above a tray would see them. In an anomalous scene, one
of the parts has a defect. References are scenes of training parts.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import datasets
import numpy as np
import torch
from tqdm import tqdm

from .. import model_name
from ..calibration import encode_calibrated
from ..data.records import load_records
from ..image_inputs import load_image
from ..image_processing_ideal import IdealImageProcessor
from ..masks import load_mask
from ..metrics import StreamingPixelMetrics, image_metrics
from ..modeling_ideal import IdealModel
from ..threshold import Calibration
from ..tiling import TiledDetector
from ..training.launch import process_device
from ..writing.files import write_atomically
from ..writing.tables import markdown_table, number
from .module_command import add_model_and_target, run_module

HEAD = ("category", "picture", "image AUROC", "pixel AUROC", "threshold", "false alarms", "misses")


@dataclass(frozen=True)
class Scene:
    """A large picture (H, W, 3) of several parts, and the mask (H, W) of the one with a defect, if there is one."""

    picture: np.ndarray
    mask: np.ndarray | None


@dataclass(frozen=True)
class SceneRecipe:
    """How scenes of one category are made: the records of the parts of each, and the place of the defective one."""

    side: int
    parts: Sequence[int]
    place: int | None = None

    def make(self, records: datasets.Dataset) -> Scene:
        """Put the parts side by side; all have the size of the first one."""
        rows = [records[index] for index in self.parts]
        size = rows[0]["image"].size
        pictures = [load_image(row["image"].resize(size), row["path"]) for row in rows]
        mask = None
        if self.place is not None:
            marked = load_mask(rows[self.place]["mask"].resize(size), size[::-1], rows[self.place]["path"])
            mask = self._mosaic(
                [marked if place == self.place else np.zeros_like(marked) for place in range(len(rows))]
            )
        return Scene(self._mosaic(pictures), mask)

    def _mosaic(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        lines = [parts[start : start + self.side] for start in range(0, len(parts), self.side)]
        return np.concatenate([np.concatenate(line, 1) for line in lines])


@dataclass(frozen=True)
class CategoryScenes:
    """Reference scenes and test scenes of a category."""

    category: str
    normal: Sequence[SceneRecipe]
    abnormal: Sequence[SceneRecipe]
    good: Sequence[SceneRecipe]
    bad: Sequence[SceneRecipe]

    @classmethod
    def draw(
        cls, records: datasets.Dataset, category: str, side: int, num_normal: int, num_test: int, seed: int
    ) -> "CategoryScenes":
        """Draw scenes: no part is in two normal references, and no defect is in two scenes."""
        columns = zip(records["category"], records["split"], records["label"], strict=True)
        rows = [(index, split, label) for index, (name, split, label) in enumerate(columns) if name == category]
        random = np.random.default_rng(seed)
        train = random.permutation([index for index, split, _ in rows if split == "train"])
        good = np.array([index for index, split, label in rows if split != "train" and not label])
        defects = random.permutation([index for index, split, label in rows if split != "train" and label])
        count = side * side
        if len(train) < num_normal * count or len(good) < count or len(defects) < 2:
            raise ValueError(
                f"{category}: expected at least {num_normal * count} training parts, {count} good and 2 defective "
                f"test parts for scenes of {count}, got {len(train)}, {len(good)} and {len(defects)}"
            )

        def scene(parts: np.ndarray, defect: int | None = None) -> SceneRecipe:
            chosen, place = list(map(int, random.choice(parts, count, replace=False))), None
            if defect is not None:
                place = int(random.integers(count))
                chosen[place] = int(defect)
            return SceneRecipe(side, chosen, place)

        normal = [scene(train[start * count : (start + 1) * count]) for start in range(num_normal)]
        abnormal = [scene(train, defects[0])]
        bad = [scene(good, defect) for defect in defects[1 : num_test + 1]]
        return cls(category, normal, abnormal, [scene(good) for _ in range(num_test)], bad)


@dataclass
class Tally:
    """Scores and maps of test scenes, judged in one way."""

    calibration: Calibration
    scores: list[float]
    labels: list[int]
    pixels: StreamingPixelMetrics

    def add(self, scene: Scene, score: float, anomaly_map: torch.Tensor) -> None:
        """Add a scene."""
        self.scores.append(score)
        self.labels.append(int(scene.mask is not None))
        mask = np.zeros(scene.picture.shape[:2], bool) if scene.mask is None else scene.mask
        self.pixels.update([anomaly_map.numpy()], [mask])

    def figures(self) -> list[float]:
        """Image and pixel AUROC in percent, threshold, false alarms and misses in percent."""
        scores, labels = np.array(self.scores), np.array(self.labels)
        called = scores >= self.calibration.threshold
        return [
            100 * image_metrics(scores, labels)["auroc"],
            100 * self.pixels.compute()["auroc"],
            self.calibration.threshold,
            100 * float(called[labels == 0].mean()),
            100 * float((~called[labels == 1]).mean()),
        ]


@torch.inference_mode()
def compare(
    model: IdealModel, processor: IdealImageProcessor, records: datasets.Dataset, scenes: CategoryScenes
) -> dict[str, list[float]]:
    """Judge the same scenes with the same references, resized and in tiles: the figures of each."""
    normal = [recipe.make(records) for recipe in scenes.normal]
    abnormal = [recipe.make(records) for recipe in scenes.abnormal]
    pictures, defects = ([scene.picture for scene in group] for group in (normal, abnormal))
    masks = [scene.mask for scene in abnormal if scene.mask is not None]
    detector = TiledDetector(model, processor)
    tiled = detector.encode_references(pictures, defects, masks, false_alarm=0.05)
    inputs = processor(normal_refs=pictures, abnormal_refs=defects, masks=masks)
    resized = encode_calibrated(model, **inputs)
    tallies = {}
    for name, references in (("resized", resized), ("in tiles", tiled)):
        if references.calibration is None:
            raise RuntimeError("expected calibrated references")
        tallies[name] = Tally(references.calibration, [], [], StreamingPixelMetrics())
    for recipe in tqdm([*scenes.good, *scenes.bad], desc=scenes.category, unit="scene"):
        scene = recipe.make(records)
        output = model(processor(query=scene.picture)["query"], references=resized)
        [whole] = processor.post_process_anomaly_detection(output, [scene.picture.shape[:2]])
        tallies["resized"].add(scene, output.scores.item(), whole)
        found = detector.detect(scene.picture, tiled)
        tallies["in tiles"].add(scene, found.score, found.anomaly_map)
    return {name: tally.figures() for name, tally in tallies.items()}


def report(results: dict[str, dict[str, list[float]]], title: str, notes: str) -> str:
    """Markdown: a row per category and kind, and the means."""
    rows = list(_rows(results))
    for kind in next(iter(results.values())):
        columns = zip(*(figures[kind] for figures in results.values()), strict=True)
        rows.append(["mean", kind, *_cells([fmean(column) for column in columns])])
    return f"{title}\n\n{markdown_table(HEAD, rows, words=2)}\n\n{notes}\n"


def _rows(results: dict[str, dict[str, list[float]]]) -> Iterator[list[str]]:
    for category, kinds in results.items():
        for kind, figures in kinds.items():
            yield [category, kind, *_cells(figures)]


def _cells(figures: Sequence[float]) -> list[str]:
    return [number(value, 3 if place == 2 else 1) for place, value in enumerate(figures)]


def build_parser() -> argparse.ArgumentParser:
    """The parser of this module's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m modeling_ideal.evaluation.tiling_report",
        description="Small defects in large scenes, in tiles and resized, as Markdown.",
    )
    add_model_and_target(parser)
    parser.add_argument("--categories", nargs="+", metavar="NAME", help="(default: all)")
    parser.add_argument("--side", type=int, default=3, help="parts along each side of a scene (default: 3)")
    parser.add_argument("--normal", type=int, default=2, help="normal reference scenes (default: 2)")
    parser.add_argument("--scenes", type=int, default=10, help="good and bad test scenes, each (default: 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True, metavar="FILE.md")
    return parser


def run(arguments: argparse.Namespace) -> str:
    """Compare both ways on every category, and write and return the report."""
    out = Path(arguments.out)
    if not out.parent.is_dir():
        raise ValueError(f"--out: expected a file in an existing folder, got {str(out)!r}")
    model = IdealModel.from_pretrained(arguments.model).to(process_device(arguments.device))
    processor = IdealImageProcessor.from_pretrained(arguments.model)
    records = load_records(arguments.target, arguments.layout)
    categories = arguments.categories or sorted(set(records["category"]))
    drawn = [
        CategoryScenes.draw(records, name, arguments.side, arguments.normal, arguments.scenes, arguments.seed)
        for name in categories
    ]
    results = {scenes.category: compare(model, processor, records, scenes) for scenes in drawn}
    names = f"{model_name(arguments.model)} on scenes of {Path(arguments.target).name}"
    notes = (
        f"Scenes of {arguments.side} x {arguments.side} parts; {arguments.normal} normal reference scenes and one "
        f"with a marked defect, {arguments.scenes} good test scenes and as many with one defective part (fewer if the "
        f"category has fewer defects), seed {arguments.seed}. Both ways have the same references and scenes. The "
        "threshold comes from the references alone, for a requested false-alarm rate of 5 %; AUROC, false alarms and "
        "misses are in percent."
    )
    text = report(results, f"# Small defects in large scenes: {names}", notes)
    write_atomically(out, text.encode())
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_module(build_parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
