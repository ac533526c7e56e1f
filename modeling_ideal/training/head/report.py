"""The output folder of a run: its options, the model, `training.json`, and a summary in words."""

import json
import platform
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import accelerate
import torch
import transformers

from ... import model_name
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...version import __version__
from ...writing.files import write_json
from ...writing.places import check_folder
from ..options import check_same_run
from ..rivals.rival import Rival
from .checkpoints import Progress
from .options import WITHOUT_EFFECT, HeadTrainingOptions
from .source import Source, current_digests

OPTIONS = "arguments.json"
RECORD = "training.json"
MODEL = "model"
CHECKPOINTS = "checkpoints"


def check_output(options: HeadTrainingOptions) -> None:
    """Refuse a folder that cannot be written to, that holds a run with other options, or what no run wrote."""
    check_folder(options.output, "--output_dir")
    check_folder(options.feature_cache, "--cache")
    file = options.output / OPTIONS
    if file.exists():
        check_same_run(options, _read_json(file), WITHOUT_EFFECT, options.output)
        return
    for name in (MODEL, CHECKPOINTS, RECORD):  # a run replaces them
        if (options.output / name).exists():
            raise ValueError(
                f"--output_dir: expected a new folder or that of a run, got {str(options.output)!r} with {name!r}, "
                "which no run has written"
            )


def write_options(options: HeadTrainingOptions) -> None:
    """Write the options of a run that starts, by which a resumed one is recognised."""
    options.output.mkdir(parents=True, exist_ok=True)
    write_json(options.output / OPTIONS, asdict(options))


def finished_record(options: HeadTrainingOptions) -> dict[str, Any] | None:
    """The record of a run that is already finished, of the same data; ValueError if the data have changed since."""
    file = options.output / RECORD
    if not file.exists():
        return None
    record = _read_json(file)
    digest, held_out = current_digests(options)
    if (record["source"]["digest"], record["source"].get("held_out", held_out)) != (digest, held_out):
        raise ValueError(
            f"{file}: the pictures, masks or splits of {options.source!r} have changed since this run; "
            "choose another --output_dir"
        )
    return record


def make_record(
    options: HeadTrainingOptions,
    progress: Progress,
    result: IdealModel | Rival,
    source: Source,
    held_out: Source | None,
    processes: int,
    notes: list[str],
) -> dict[str, Any]:
    """How the model came to be; folders by name alone, without their paths on this machine."""
    given = asdict(options)
    for name in ("source", "output_dir", "backbone", "model", "cache"):
        if given[name] is not None and Path(given[name]).expanduser().exists():
            given[name] = model_name(given[name])
    return {
        "arguments": given,
        "versions": {
            "modeling-ideal": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "accelerate": accelerate.__version__,
            "python": platform.python_version(),
        },
        "processes": processes,
        "source": {
            "digest": source.digest,
            "held_out": None if held_out is None else held_out.digest,
            "categories": source.categories,
            "normal": len(source.catalogue) - len(source.anomalous),
            "anomalous": len(source.anomalous),
            "notes": notes,
        },
        "model": result.fingerprint,
        "seconds": progress.seconds,
        "epochs": progress.epoch_losses(options.steps_per_epoch),
        "steps": [losses["loss"] for losses in progress.losses],
        "validation": progress.validations,
    }


def write_run(
    options: HeadTrainingOptions, record: dict[str, Any], result: IdealModel | Rival, processor: IdealImageProcessor
) -> None:
    """Write the model or rival, then the record: if the record is there, the run is complete."""
    folder = options.output / MODEL
    temporary = folder.with_name(f".{MODEL}.partial")
    for leftover in (temporary, folder):  # of a run that was killed at this point
        shutil.rmtree(leftover, ignore_errors=True)
    result.save_pretrained(temporary)
    processor.save_pretrained(temporary)
    temporary.rename(folder)
    write_json(options.output / RECORD, record)


def summary(options: HeadTrainingOptions, record: dict[str, Any]) -> str:
    """What the run did, and what to do next."""
    source, epochs, given = record["source"], record["epochs"], record["arguments"]
    verb = "Fine-tuned" if given["model"] else f"Trained {given['method']}" if given.get("method") else "Trained"
    categories = source["categories"]
    lines = [
        f"{verb} on {given['source']} ({len(categories)} {'category' if len(categories) == 1 else 'categories'}: "
        f"{source['normal']} normal and {source['anomalous']} anomalous pictures): "
        f"{given['epochs'] * given['episodes_per_epoch']} episodes in {given['epochs']} epochs, "
        f"{record['seconds']:.0f} s.",
        *(f"{note}." for note in source["notes"]),
        f"Mean loss: {epochs[0]['loss']:.4f} in the first epoch, {epochs[-1]['loss']:.4f} in the last.",
    ]
    if record["validation"]:
        for setup, figures in record["validation"][-1]["setups"].items():
            means = figures["mean"]
            lines.append(
                f"Held out ({', '.join(figures['categories'])}), {setup}: image AUROC {means['image_auroc']:.1f}, "
                f"AP {means['image_ap']:.1f}, pixel AUROC {means['pixel_auroc']:.1f}."
            )
    folder = options.output / MODEL
    lines.append(f"Model: {folder}. Record of the run: {options.output / RECORD}.")
    what = f"--model {folder}"
    if given.get("method"):
        what = f"--backbone {options.backbone} --compare {given['method']}={folder}"
    lines.append(f"Next: ideal evaluate {what} --target DIR --setups {given['setups'][0]} --out results")
    return "\n".join(lines)


def _read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))
