"""A training run from its options to the saved model.

The backbone runs once per picture, to fill the feature cache, and never in the loop. A run is a function of its
options: stopped at any moment, it resumes from its last checkpoint when it is started again.
"""

from dataclasses import asdict
from functools import partial
from typing import Any

from ...data.folder import check_source
from ..launch import make_accelerator
from .batches import Batches
from .checkpoints import Checkpoints
from .learner import Learner, load_learner
from .loop import HeadTraining, Validation
from .options import HeadTrainingOptions
from .report import CHECKPOINTS, check_output, finished_record, make_record, write_options, write_run
from .source import Source, draw_episodes, load_source
from .validation import validate, validation_sets


def train_head(options: HeadTrainingOptions) -> dict[str, Any]:
    """Do a run, or the rest of it; returns its record, which is also written to `output_dir / "training.json"`."""
    accelerator = make_accelerator(
        options.device,
        mixed_precision="no",  # eigenvectors need float32, so `accelerate launch --mixed_precision` has no effect
        log_with=options.trackers or None,
        project_dir=str(options.output / "logs"),
    )
    check_output(options)
    if record := finished_record(options):
        return record
    check_source(options.source, "--source")
    accelerator.wait_for_everyone()  # every process has looked at the folder before the first one writes to it
    learner = load_learner(options, accelerator.device)
    source, held_out_source = load_source(options, learner.encoder)
    episodes, notes = draw_episodes(source, options)
    for note in notes:
        accelerator.print(note)
    if options.trackers:
        accelerator.init_trackers("ideal", {name: str(value) for name, value in asdict(options).items()})
    checkpoints = Checkpoints(options.output / CHECKPOINTS, options.keep_checkpoints, source.digest)
    validation = _validation(options, learner, held_out_source)
    if accelerator.is_main_process:  # not before, so that a start that is refused leaves the folder to the next one
        write_options(options)
    training = HeadTraining(options, accelerator, learner.objective, learner.head, checkpoints, validation)
    batches = Batches(
        episodes,
        source.cache,
        options.batch_size,
        accelerator.device,
        accelerator.process_index,
        accelerator.num_processes,
    )
    progress = training.run(batches)
    result = learner.result.eval()
    record = make_record(options, progress, result, source, held_out_source, accelerator.num_processes, notes)
    if accelerator.is_main_process:
        write_run(options, record, result, learner.processor)
    accelerator.end_training()
    return record


def _validation(options: HeadTrainingOptions, learner: Learner, held_out: Source | None) -> Validation | None:
    """How to validate; raises, before any training, if a held-out category has too few pictures."""
    if held_out is None:
        return None
    sets = validation_sets(held_out, options.setups, options.validation_seeds)
    return partial(validate, learner.result, held_out, sets)
