"""What a calibrated threshold is worth: false alarms and misses on test images that it has not seen.

python -m modeling_ideal.evaluation.calibration_report --model FOLDER --target DIR --out FILE.md
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import datasets
import numpy as np
import torch
from tqdm import tqdm

from ..calibration import encode_calibrated
from ..data.catalogue import Catalogue
from ..data.feature_cache import FeatureCache, encode_records
from ..data.records import load_records
from ..data.reference_sets import ReferenceSet, draw_references, inference_episodes
from ..image_processing_ideal import IdealImageProcessor
from ..modeling_ideal import IdealModel
from ..references import IdealReferences
from ..threshold import Calibration
from ..training.encoder import BackboneEncoder
from ..writing.files import write_atomically
from ..writing.tables import markdown_table, number

FIXED = 0.5
HEAD = (
    *("category", "groups overlap", "threshold"),
    *("false alarms, %", "misses, %", "at 0.5: false alarms", "misses", "best: false alarms", "misses"),
)


class Rates(NamedTuple):
    """Of test images at a threshold, in percent."""

    false_alarms: float  # of the normal ones
    misses: float  # of the anomalous ones

    @classmethod
    def at(cls, threshold: float, scores: np.ndarray, labels: np.ndarray) -> "Rates":
        """Scores (n,) above the threshold are called anomalous; labels (n,) 0 or 1."""
        called = scores > threshold
        return cls(100 * float(called[labels == 0].mean()), 100 * float((~called[labels == 1]).mean()))


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The one of the highest Youden index: the smallest sum of both rates. Found on test images, so nobody has it."""
    candidates = np.concatenate([[0.0], np.unique(scores)])
    return float(min(candidates, key=lambda threshold: sum(Rates.at(threshold, scores, labels))))


@dataclass(frozen=True)
class Unit:
    """One category with one reference set."""

    category: str
    calibration: Calibration
    calibrated: Rates
    fixed: Rates
    best: Rates


@dataclass(frozen=True)
class Bench:
    """A model, and the pictures and cached features of a target."""

    model: IdealModel
    processor: IdealImageProcessor
    pictures: datasets.Dataset
    catalogue: Catalogue
    cache: FeatureCache

    @torch.inference_mode()
    def measure(self, references: ReferenceSet, false_alarm: float) -> Unit:
        """Calibrate on the references alone, then score the test images."""
        episodes = inference_episodes(self.catalogue, references, "general")
        encoded = self._encode(episodes[0].normal, episodes[0].abnormal, false_alarm)
        scores, labels = [], []
        for episode in episodes:
            features = self.cache.features([episode.query]).float().to(self.model.device)
            scores.append(self.model.score_features(features, encoded, (1, 1)).scores.item())
            labels.append(self.cache.labels[episode.query])
        if encoded.calibration is None:
            raise RuntimeError("expected calibrated references")
        values, truth = np.array(scores), np.array(labels)
        thresholds = (encoded.calibration.threshold, FIXED, best_threshold(values, truth))
        rates = (Rates.at(threshold, values, truth) for threshold in thresholds)
        return Unit(references.category, encoded.calibration, *rates)

    def _encode(self, normal: Sequence[int], abnormal: Sequence[int], false_alarm: float) -> IdealReferences:
        """Pictures, not cached features: the altered copies of a single reference need them."""
        known = abnormal and all(self.cache.has_mask(index) for index in abnormal)
        inputs = self.processor(
            normal_refs=[self.pictures[index]["image"] for index in normal],
            abnormal_refs=[self.pictures[index]["image"] for index in abnormal] or None,
            masks=[self.pictures[index]["mask"] for index in abnormal] if known else None,
        )
        return encode_calibrated(self.model, **inputs, false_alarm=false_alarm)


def report(units: Sequence[Unit], what: str, false_alarm: float) -> str:
    """Markdown: a row a category, means over its reference sets, the mean of all last."""
    rows = []
    for category in dict.fromkeys(unit.category for unit in units):
        own = [unit for unit in units if unit.category == category]
        rows.append([category, f"{sum(unit.calibration.overlap for unit in own)} of {len(own)}", *_means(own)])
    rows.append(["mean", f"{sum(unit.calibration.overlap for unit in units)} of {len(units)}", *_means(units)])
    supported = max(unit.calibration.supported_false_alarm for unit in units)
    notes = (
        f"The threshold comes from the references alone, for a wished false-alarm level of {100 * false_alarm:.3g} %; "
        f"so few normal references can vouch for {100 * supported:.3g} % at best, the rest is extrapolation. Rates in "
        "percent of the normal and of the anomalous test images. Best: the threshold with the highest Youden index, "
        "found on the test images themselves, which no user has."
    )
    return f"{what}\n\n{markdown_table(HEAD, rows, words=2)}\n\n{notes}\n"


def _means(units: Sequence[Unit]) -> list[str]:
    cells = [number(fmean(unit.calibration.threshold for unit in units), 3)]
    for kind in ("calibrated", "fixed", "best"):
        cells += [number(fmean(column)) for column in zip(*(getattr(unit, kind) for unit in units), strict=True)]
    return cells


def build_parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(description="False alarms and misses at the calibrated threshold, as Markdown.")
    parser.add_argument("--model", required=True, metavar="FOLDER", help="a trained IDEAL model: folder or Hub name")
    parser.add_argument("--target", required=True, metavar="DIR", help="folder of a data set")
    parser.add_argument("--layout", default="auto", help="of the target (default: recognised)")
    parser.add_argument("--setup", default="N4A1", metavar="NxAy")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    parser.add_argument("--false-alarm", type=float, default=0.05, metavar="SHARE", help="wished (default: 0.05)")
    parser.add_argument("--cache", metavar="DIR", help="feature cache (default: beside the output)")
    parser.add_argument("--out", required=True, metavar="FILE.md")
    return parser


def run(arguments: argparse.Namespace) -> str:
    """Measure every category and write the table, which is returned too."""
    model = IdealModel.from_pretrained(arguments.model)
    processor = IdealImageProcessor.from_pretrained(arguments.model)
    records = load_records(arguments.target, arguments.layout)
    out = Path(arguments.out)
    cache = encode_records(records, BackboneEncoder(model, processor), arguments.cache or out.parent / "features")
    catalogue = Catalogue.from_records(records)
    bench = Bench(model, processor, records.select_columns(["image", "mask"]), catalogue, cache)
    sets = [references for seed in arguments.seeds for references in draw_references(catalogue, arguments.setup, seed)]
    units = [bench.measure(references, arguments.false_alarm) for references in tqdm(sets, unit="set")]
    names = f"{Path(arguments.model).name} on {Path(arguments.target).name}"
    what = f"# Calibration: {names}, {arguments.setup}, seed {', '.join(map(str, arguments.seeds))}"
    text = report(units, what, arguments.false_alarm)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 2 for bad input, said in one line."""
    try:
        print(run(build_parser().parse_args(arguments)))
    except (ValueError, OSError) as error:
        print(f"calibration_report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
