"""The implementation of `ideal references`, and what it shares with the commands that use references."""

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

from transformers import pipeline
from transformers.utils import logging

from .. import IDEAL_TINY
from ..devices import choose_device
from ..pipeline_ideal import TASK, AnomalyDetectionPipeline
from ..references import IdealReferences
from ..writing.places import check_file
from .files import Pictures, given_pictures


def encode_references(arguments: argparse.Namespace) -> str:
    """Encode the references that the arguments name to a file, and return a summary with any warnings."""
    out = Path(arguments.out)
    check_file(out, "--out", replaces=is_references_file, kind="a references file")
    given = given_pictures(arguments)
    if arguments.false_alarm and not given.normal and not given.masks:
        raise ValueError("--false-alarm: expected --normal, or --masks, to find a threshold with, got neither")
    announce(given)
    references = set_references(
        load_pipeline(arguments),
        **given._asdict(),
        false_alarm=arguments.false_alarm,
        tiling=arguments.tiling or None,
        keep_pictures=not arguments.no_pictures,
        max_patches=arguments.max_patches,
    )
    return save_references(references, out)


def announce(given: Pictures) -> None:
    """Tell a person, not a program, what the wait is for."""
    if sys.stderr.isatty():
        count = len(given.normal or ()) + len(given.abnormal or ())
        pictures = "1 picture, some seconds" if count == 1 else f"{count} pictures, some seconds each"
        print(f"encoding {pictures} ...", file=sys.stderr, flush=True)


def save_references(references: IdealReferences, out: Path) -> str:
    """Write a references file, and return a summary with any warnings."""
    references.save(out)
    marks = {"given": ", defects marked", "estimated": ", defects found by the model", "none": ""}
    counts = f"{references.num_normal} normal and {references.num_abnormal} abnormal references"
    types = f", types {', '.join(sorted(set(references.types)))}" if references.types else ""
    lines, calibration = [f"{out}: {counts}{marks[references.mask_source]}{types}"], references.calibration
    if calibration is not None:
        lines.append(f"threshold {calibration.threshold:.3g} for {calibration.false_alarm:.1%} false alarms")
    return "\n".join([*lines, *(f"warning: {warning}" for warning in references.warnings)])


def load_pipeline(arguments: argparse.Namespace) -> AnomalyDetectionPipeline:
    """Load the model that the arguments name, or the embedded one."""
    shown = logging.is_progress_bar_enabled()  # a person may have switched all off
    logging.disable_progress_bar()  # of loading weights, before the command's own
    try:
        return pipeline(TASK, model=str(arguments.model or IDEAL_TINY), device=choose_device(arguments.device))
    finally:
        if shown:
            logging.enable_progress_bar()  # that of tiles is useful


def set_references(pipe: AnomalyDetectionPipeline, **given: Any) -> IdealReferences:
    """Set the references of a pipeline, without the warnings that it emits: the commands print them in their place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return pipe.set_references(**given)


def is_references_file(path: Path) -> bool:
    """Whether a file is one that `ideal references` wrote."""
    try:
        IdealReferences.load(path)
    except ValueError:
        return False
    return True
