"""A training run from its options to the saved model.

The backbone runs once per picture, to fill the feature cache, and never in the loop. A run is a function of its
options: stopped at any moment, it resumes from its last checkpoint when it is started again.
"""

from dataclasses import asdict
from typing import Any

from ..encoder import BackboneEncoder
from ..launch import make_accelerator
from .batches import Batches
from .checkpoints import Checkpoints
from .loop import HeadTraining
from .options import HeadTrainingOptions
from .report import CHECKPOINTS, check_output, finished_record, make_record, write_options, write_run
from .source import draw_episodes, load_source
from .starting_point import load_start


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
    accelerator.wait_for_everyone()  # every process has looked at the folder before the first one writes to it
    if accelerator.is_main_process:
        write_options(options)
    model, processor = load_start(options)
    model.to(accelerator.device)
    source, held_out_source = load_source(options, BackboneEncoder(model, processor))
    episodes, notes = draw_episodes(source, options)
    for note in notes:
        accelerator.print(note)
    if options.trackers:
        accelerator.init_trackers("ideal", {name: str(value) for name, value in asdict(options).items()})
    checkpoints = Checkpoints(options.output / CHECKPOINTS, options.keep_checkpoints, source.digest)
    training = HeadTraining(options, accelerator, model, checkpoints, held_out_source)
    batches = Batches(
        episodes,
        source.cache,
        options.batch_size,
        accelerator.device,
        accelerator.process_index,
        accelerator.num_processes,
    )
    progress = training.run(batches)
    record = make_record(options, progress, model.eval(), source, held_out_source, accelerator.num_processes, notes)
    if accelerator.is_main_process:
        write_run(options, record, model, processor)
    accelerator.end_training()
    return record
