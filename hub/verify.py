"""Verify that a built folder loads without the package, and scores as the source does."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel

from . import fresh_load

SECONDS = 600
TOLERANCE = 1e-5  # the guarantee for scores on any machine (docs/reproducibility.md); other weights differ far more


def verify(folder: Path, model: IdealModel, processor: IdealImageProcessor) -> None:
    """Load a folder in a new process in every way; ValueError unless all scores agree with the model's to 1e-5.

    Args:
        folder: a built Hub repository.
        model: the model from the source, with weights rounded to the precision of the folder.
        processor: the processor from the source.
    """
    with tempfile.TemporaryDirectory() as name:
        pictures = Path(name)
        draw_pictures(pictures)
        found = _in_a_fresh_process(folder, pictures)
        pipe = AnomalyDetectionPipeline(model=model, image_processor=processor)
        expected = fresh_load.pipeline_scores(pipe, pictures)
        with torch.no_grad():
            expected_of_model = fresh_load.model_scores(model, processor, pictures)
    for way, scores in found.items():
        wanted = expected_of_model if way == "model" else expected
        if len(scores) != len(wanted) or not np.allclose(scores, wanted, rtol=0, atol=TOLERANCE):
            raise ValueError(f"{folder.name}: expected the scores of the source, got others through {way}")


def draw_pictures(folder: Path) -> None:
    """Write the images of noise and the mask that `fresh_load` reads."""
    random = np.random.default_rng(0)
    for name in fresh_load.PICTURES.values():
        Image.fromarray(random.integers(0, 256, (64, 80, 3), dtype=np.uint8)).save(folder / name)
    mask = np.zeros((64, 80), np.uint8)
    mask[16:40, 20:60] = 255
    Image.fromarray(mask).save(folder / fresh_load.PICTURES["mask"])


def _in_a_fresh_process(folder: Path, pictures: Path) -> dict[str, list[float]]:
    home = pictures / "home"  # an empty cache, without modules of earlier builds
    environment = {**os.environ, "HF_HOME": str(home), "HF_MODULES_CACHE": str(home), "HF_HUB_OFFLINE": "1"}
    script = [sys.executable, "-I", fresh_load.__file__, str(folder.resolve()), str(pictures)]
    result = subprocess.run(  # noqa: S603
        [*script, str(torch.get_num_threads())],
        env=environment,
        cwd=pictures,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if result.returncode:
        raise ValueError(f"{folder.name}: expected to load in a fresh process, got\n{result.stderr[-3000:]}")
    return json.loads(result.stdout.splitlines()[-1])
