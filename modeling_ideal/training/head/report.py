"""What a run leaves behind: the model, `training.json`, and a few sentences."""

import json
import platform
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import torch
import transformers

from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...version import __version__
from ...writing.files import write_atomically
from .checkpoints import Progress
from .options import TrainingArguments
from .source import Source

RECORD = "training.json"
MODEL = "model"


def claim_output(arguments: TrainingArguments) -> None:
    """Refuse a folder that holds a run with other arguments."""
    file = arguments.output / "arguments.json"
    if file.exists():
        differences = arguments.differences(json.loads(file.read_text()))
        if differences:
            raise ValueError(
                f"{arguments.output} holds a run with other arguments ({'; '.join(differences)}): "
                "repeat those to go on with it, or choose another --output_dir"
            )


def write_arguments(arguments: TrainingArguments) -> None:
    """Write them down beside the run, which is then known by them."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    _write_json(arguments.output / "arguments.json", asdict(arguments))


def finished_record(arguments: TrainingArguments) -> dict[str, Any] | None:
    """The record of a run that is already at its end."""
    file = arguments.output / RECORD
    return json.loads(file.read_text()) if file.exists() else None


def epoch_losses(progress: Progress, steps_per_epoch: int) -> list[dict[str, float]]:
    """The mean losses of each finished epoch."""
    return [
        {
            name: float(np.mean([losses[name] for losses in progress.losses[end - steps_per_epoch : end]]))
            for name in progress.losses[0]
        }
        for end in range(steps_per_epoch, progress.step + 1, steps_per_epoch)
    ]


def make_record(
    arguments: TrainingArguments,
    progress: Progress,
    model: IdealModel,
    source: Source,
    processes: int,
    sentences: list[str],
) -> dict[str, Any]:
    """All that tells how the model came to be; folders by their names, since where they lie says nothing."""
    given = asdict(arguments)
    for name in ("source", "output_dir", "backbone", "model", "cache"):
        if given[name] is not None and Path(given[name]).expanduser().exists():
            given[name] = Path(given[name]).name
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
            "categories": source.categories,
            "normal": len(source.catalogue) - len(source.anomalous),
            "anomalous": len(source.anomalous),
            "notes": sentences,
        },
        "model": model.fingerprint,
        "seconds": progress.seconds,
        "epochs": epoch_losses(progress, arguments.steps_per_epoch),
        "steps": [losses["loss"] for losses in progress.losses],
        "validation": progress.validations,
    }


def write_run(
    arguments: TrainingArguments, record: dict[str, Any], model: IdealModel, processor: IdealImageProcessor
) -> None:
    """Write the model, then the record: where the record is, all is there."""
    folder = arguments.output / MODEL
    temporary = folder.with_name(f".{MODEL}.partial")
    for leftover in (temporary, folder):  # of a start that was killed right here
        shutil.rmtree(leftover, ignore_errors=True)
    model.save_pretrained(temporary)
    processor.save_pretrained(temporary)
    temporary.rename(folder)
    _write_json(arguments.output / RECORD, record)


def summary(arguments: TrainingArguments, record: dict[str, Any]) -> str:
    """What the run did, and what to do next."""
    source, epochs, given = record["source"], record["epochs"], record["arguments"]
    verb = "Fine-tuned" if given["model"] else "Trained"
    categories = source["categories"]
    lines = [
        f"{verb} on {given['source']} ({len(categories)} {'category' if len(categories) == 1 else 'categories'}: "
        f"{source['normal']} normal and {source['anomalous']} anomalous pictures): "
        f"{given['epochs'] * given['episodes_per_epoch']} episodes in {given['epochs']} epochs, "
        f"{record['seconds']:.0f} s.",
        *(f"{sentence}." for sentence in source["notes"]),
        f"Mean loss of the first epoch {epochs[0]['loss']:.4f}, of the last {epochs[-1]['loss']:.4f}.",
    ]
    if record["validation"]:
        for setup, figures in record["validation"][-1]["setups"].items():
            means = figures["mean"]
            lines.append(
                f"Held out ({', '.join(figures['categories'])}), {setup}: image AUROC {means['image_auroc']:.1f}, "
                f"AP {means['image_ap']:.1f}, pixel AUROC {means['pixel_auroc']:.1f}."
            )
    folder = arguments.output / MODEL
    lines.append(f"The model is in {folder}, how it came to be in {arguments.output / RECORD}.")
    lines.append(f"Next: ideal evaluate --model {folder} --target DIR --setups {given['setups'][0]} --out results")
    return "\n".join(lines)


def _write_json(path: Path, content: Any) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
