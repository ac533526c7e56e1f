"""The implementation of `ideal references`, and what it shares with the commands that use references."""

import argparse
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
from .files import images_below, match_masks, types_by_folder


def encode_references(arguments: argparse.Namespace) -> str:
    """Encode the references that the arguments name to a file, and return a summary with any warnings."""
    out = Path(arguments.out)
    check_file(out, "--out", replaces=_is_references_file, kind="a references file")
    normal = images_below(arguments.normal, "--normal")
    abnormal = images_below(arguments.abnormal, "--abnormal")
    if not normal and not abnormal:
        raise ValueError("expected --normal DIR, --abnormal DIR or both, got neither")
    masks = match_masks(abnormal, arguments.abnormal, arguments.masks) if arguments.masks else None
    types = types_by_folder(abnormal, arguments.abnormal) if arguments.types else None
    references = set_references(
        load_pipeline(arguments),
        normal=normal or None,
        abnormal=abnormal or None,
        masks=masks,
        types=types,
        # A threshold needs normal images or masks.
        false_alarm=arguments.false_alarm if normal or masks else None,
        tiling=arguments.tiling or None,
    )
    references.save(out)
    lines = [f"{out}: {references}"]
    if references.calibration is not None:
        lines.append(f"threshold {references.calibration.threshold:.3f} for {arguments.false_alarm:.1%} false alarms")
    return "\n".join([*lines, *(f"warning: {warning}" for warning in references.warnings)])


def load_pipeline(arguments: argparse.Namespace) -> AnomalyDetectionPipeline:
    """Load the model that the arguments name, or the embedded one."""
    logging.disable_progress_bar()  # of loading weights, before the command's own
    return pipeline(TASK, model=str(arguments.model or IDEAL_TINY), device=choose_device(arguments.device))


def set_references(pipe: AnomalyDetectionPipeline, **given: Any) -> IdealReferences:
    """Set the references of a pipeline, without the warnings that it emits: the commands print them in their place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return pipe.set_references(**given)


def _is_references_file(path: Path) -> bool:
    try:
        IdealReferences.load(path)
    except ValueError:
        return False
    return True
