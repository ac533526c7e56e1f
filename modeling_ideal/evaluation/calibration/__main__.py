"""python -m modeling_ideal.evaluation.calibration --model FOLDER --target DIR --out DIR"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from ... import model_name
from ...data.catalogue import Catalogue
from ...data.feature_cache import encode_records
from ...data.records import load_records
from ...data.reference_sets import ReferenceSet, draw_references, write_references
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...training.encoder import BackboneEncoder, PoseEncoder
from ...training.launch import process_device
from ...writing.files import write_atomically, write_figure, write_json
from ...writing.places import check_folder
from ..module_command import add_model_and_target, run_module
from ..protocol.poses import encode_poses
from .report import draw_levels, report
from .trials import Trial, Trials

FORMAT = 2  # of a stored trial; a change in the computation needs a new number


def build_parser() -> argparse.ArgumentParser:
    """The parser of this module's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m modeling_ideal.evaluation.calibration",
        description="Calibrates a model on reference sets, judges the test images, and writes the false-alarm levels "
        "reached for those wished for, and what is missed: report.md, levels.png, trials.json, references.json. The "
        "same command resumes a run that was stopped.",
    )
    add_model_and_target(parser)
    parser.add_argument(
        "--setups",
        nargs="+",
        default=["N1A1", "N2A1", "N4A1", "N8A1", "N16A1"],
        metavar="NxAy",
        help="numbers of normal and abnormal references (default: N1A1 N2A1 N4A1 N8A1 N16A1)",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED")
    parser.add_argument(
        "--false-alarm", type=float, default=0.05, metavar="SHARE", help="requested false-alarm rate (default: 0.05)"
    )
    parser.add_argument("--cache", metavar="DIR", help="feature cache (default: OUT/features)")
    parser.add_argument("--out", required=True, metavar="DIR", help="output folder")
    return parser


def run(arguments: argparse.Namespace) -> str:
    """Measure every category, and write and return the report."""
    out = Path(arguments.out)
    check_folder(out, "--out")
    model = IdealModel.from_pretrained(arguments.model).to(process_device(arguments.device))
    processor = IdealImageProcessor.from_pretrained(arguments.model)
    records = load_records(arguments.target, arguments.layout)
    folder = Path(arguments.cache or out / "features")
    cache = encode_records(records, BackboneEncoder(model, processor), folder)
    catalogue = Catalogue.from_records(records)
    sets = [
        references
        for setup in arguments.setups
        for seed in arguments.seeds
        for references in draw_references(catalogue, setup, seed)
    ]
    poses, turn = model.config.num_rotations, None
    if poses > 1:
        turn = encode_poses(records, catalogue, sets, PoseEncoder(model, processor, poses), folder)
    runner = Trials(model, processor, records.select_columns(["image", "mask"]), catalogue, cache, turn)
    trials = [_resumed(runner, references, arguments.false_alarm, out) for references in tqdm(sets, unit="set")]
    title = f"{model_name(arguments.model)} on {Path(arguments.target).name}"
    seeds = f"seed{'s' * (len(arguments.seeds) > 1)} {', '.join(map(str, arguments.seeds))}"
    text = report(trials, f"# Calibration: {title}, {seeds}", arguments.false_alarm)
    write_references(out / "references.json", sets)
    write_json(out / "trials.json", [trial.to_dict() for trial in trials])
    write_figure(out / "levels.png", draw_levels(trials, title))
    write_atomically(out / "report.md", text.encode())
    return text


def _resumed(runner: Trials, references: ReferenceSet, false_alarm: float, out: Path) -> Trial:
    """Read a trial that an earlier run has stored, or run it."""
    queries = [
        (path, runner.catalogue.contents[index], runner.catalogue.anomaly_types[index], runner.cache.mask_keys[index])
        for index, path in enumerate(runner.catalogue.paths)
        if runner.catalogue.categories[index] == references.category
    ]
    settings = [FORMAT, runner.model.fingerprint, runner.model.config.top_fraction, false_alarm]
    everything = json.dumps([settings, runner.cache.directory.name, asdict(references), queries])
    file = out / "trials" / f"{hashlib.blake2b(everything.encode(), digest_size=16).hexdigest()}.json"
    if file.exists():
        stored = Trial.from_dict(json.loads(file.read_text(encoding="utf-8")))
        return stored.with_prior(runner.model.config.prior)  # which may have changed; the scores have not
    trial = runner.run(references, false_alarm)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, trial.to_dict())
    return trial


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_module(build_parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
