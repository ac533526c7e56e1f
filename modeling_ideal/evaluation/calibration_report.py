"""How good a calibrated threshold is: false alarms and misses on test images that it has not seen.

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
    """Errors on test images at a threshold, in percent."""

    false_alarms: float  # of the normal images
    misses: float  # of the anomalous images

    @classmethod
    def at(cls, threshold: float, scores: np.ndarray, labels: np.ndarray) -> "Rates":
        """Scores (n,) above the threshold are called anomalous; labels (n,) 0 or 1."""
        called = scores > threshold
        return cls(100 * float(called[labels == 0].mean()), 100 * float((~called[labels == 1]).mean()))


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The threshold with the highest Youden index: the smallest sum of both rates. No user has it: it needs labels."""
    candidates = np.concatenate([[0.0], np.unique(scores)])
    return float(min(candidates, key=lambda threshold: sum(Rates.at(threshold, scores, labels))))


@dataclass(frozen=True)
class Trial:
    """One category, calibrated on one reference set."""

    category: str
    calibration: Calibration
    calibrated: Rates
    fixed: Rates
    best: Rates


@dataclass(frozen=True)
class CalibrationTrials:
    """Calibrates a model on reference sets of a target, whose pictures and cached features it has."""

    model: IdealModel
    processor: IdealImageProcessor
    pictures: datasets.Dataset
    catalogue: Catalogue
    cache: FeatureCache

    @torch.inference_mode()
    def run(self, references: ReferenceSet, false_alarm: float) -> Trial:
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
        return Trial(references.category, encoded.calibration, *rates)

    def _encode(self, normal: Sequence[int], abnormal: Sequence[int], false_alarm: float) -> IdealReferences:
        """From pictures, not cached features: augmented copies of a single reference need the picture."""
        masked = abnormal and all(self.cache.has_mask(index) for index in abnormal)
        inputs = self.processor(
            normal_refs=[self.pictures[index]["image"] for index in normal],
            abnormal_refs=[self.pictures[index]["image"] for index in abnormal] or None,
            masks=[self.pictures[index]["mask"] for index in abnormal] if masked else None,
        )
        return encode_calibrated(self.model, **inputs, false_alarm=false_alarm)


def report(trials: Sequence[Trial], title: str, false_alarm: float) -> str:
    """Markdown: one row per category with the means over its reference sets, and the mean of all."""
    rows = []
    for category in dict.fromkeys(trial.category for trial in trials):
        rows.append([category, *_cells([trial for trial in trials if trial.category == category])])
    rows.append(["mean", *_cells(trials)])
    supported = max(trial.calibration.supported_false_alarm for trial in trials)
    notes = (
        f"The threshold comes from the references alone, for a requested false-alarm rate of {100 * false_alarm:.3g} "
        f"%. So few normal references support {100 * supported:.3g} % at best; the rest is extrapolation. Rates are "
        "in percent of the normal and of the anomalous test images. Best: the threshold with the highest Youden "
        "index, found on the test images themselves, which no user has."
    )
    return f"{title}\n\n{markdown_table(HEAD, rows, words=2)}\n\n{notes}\n"


def _cells(trials: Sequence[Trial]) -> list[str]:
    """How many groups overlap, the mean threshold, and the mean rates at each kind of threshold."""
    cells = [f"{sum(trial.calibration.overlap for trial in trials)} of {len(trials)}"]
    cells.append(number(fmean(trial.calibration.threshold for trial in trials), 3))
    for kind in ("calibrated", "fixed", "best"):
        cells += [number(fmean(column)) for column in zip(*(getattr(trial, kind) for trial in trials), strict=True)]
    return cells


def build_parser() -> argparse.ArgumentParser:
    """The parser of this module's command line."""
    parser = argparse.ArgumentParser(description="False alarms and misses at the calibrated threshold, as Markdown.")
    parser.add_argument("--model", required=True, metavar="FOLDER", help="a trained IDEAL model: folder or Hub name")
    parser.add_argument("--target", required=True, metavar="DIR", help="folder of a data set")
    parser.add_argument("--layout", default="auto", help="layout of the target (default: detected)")
    parser.add_argument("--setup", default="N4A1", metavar="NxAy", help="references of a category (default: N4A1)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    parser.add_argument(
        "--false-alarm", type=float, default=0.05, metavar="SHARE", help="requested false-alarm rate (default: 0.05)"
    )
    parser.add_argument("--cache", metavar="DIR", help="feature cache (default: features/ beside the output)")
    parser.add_argument("--out", required=True, metavar="FILE.md")
    return parser


def run(arguments: argparse.Namespace) -> str:
    """Measure every category, and write and return the report."""
    model = IdealModel.from_pretrained(arguments.model)
    processor = IdealImageProcessor.from_pretrained(arguments.model)
    records = load_records(arguments.target, arguments.layout)
    out = Path(arguments.out)
    cache = encode_records(records, BackboneEncoder(model, processor), arguments.cache or out.parent / "features")
    catalogue = Catalogue.from_records(records)
    trials = CalibrationTrials(model, processor, records.select_columns(["image", "mask"]), catalogue, cache)
    sets = [references for seed in arguments.seeds for references in draw_references(catalogue, arguments.setup, seed)]
    finished = [trials.run(references, arguments.false_alarm) for references in tqdm(sets, unit="set")]
    names = f"{Path(arguments.model).name} on {Path(arguments.target).name}"
    title = f"# Calibration: {names}, {arguments.setup}, seed {', '.join(map(str, arguments.seeds))}"
    text = report(finished, title, arguments.false_alarm)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for bad input, explained in one line."""
    try:
        print(run(build_parser().parse_args(arguments)))
    except (ValueError, OSError) as error:
        print(f"calibration_report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
