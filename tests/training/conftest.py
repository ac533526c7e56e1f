"""A small source data set, tiny backbones and models in folders, and short runs on them that several tests share."""

import json
import os
from dataclasses import asdict

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Dinov2Backbone, Dinov2Config

from modeling_ideal.training.distillation.loop import LOG, Distillation
from modeling_ideal.training.distillation.options import DistillationOptions
from modeling_ideal.training.head.options import HeadTrainingOptions
from modeling_ideal.training.head.run import train_head

from ..conftest import PATCH, threads, tiny_model
from ..evaluation.conftest import SIDE, model_folder, save_part  # noqa: F401 - a fixture

TINY = [f"image_size={SIDE}", "num_deviation_vectors=5", "num_attention_heads=4", "top_fraction=0.1"]


@pytest.fixture(scope="package", autouse=True)
def small_and_alone(tmp_path_factory):
    """One thread, which is faster at this size, and a cache of `datasets` away from the user's; yields the latter."""
    cache = tmp_path_factory.mktemp("datasets_cache")
    with threads(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        datasets.disable_progress_bars()
        yield cache


@pytest.fixture(scope="package")
def environment(small_and_alone):
    """Of a fresh process that computes exactly as this one does."""
    settings = {"HF_DATASETS_CACHE": str(small_and_alone), "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **settings}


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """Two categories: `nut` with two types of defect, `bolt` with one."""
    root = tmp_path_factory.mktemp("source") / "parts"
    random = np.random.default_rng(0)
    for category, kinds in (("nut", ("scratch", "hole")), ("bolt", ("scratch",))):
        for kind, count in (("train", 5), ("good", 4), *((kind, 3) for kind in kinds)):
            for index in range(count):
                save_part(root, category, kind, f"{index:03}", random)
    return root


@pytest.fixture(scope="session")
def backbone_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone")
    tiny_model().backbone.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def options_in(source, backbone_folder, tmp_path_factory):
    """Options of a run of eight steps from scratch in a folder, with changes; all runs share a feature cache."""
    cache = tmp_path_factory.mktemp("features")

    def build(folder, **changes):
        defaults = {
            "source": str(source),
            "backbone": str(backbone_folder),
            "output_dir": str(folder),
            "cache": str(cache),
            "config": TINY,
            "epochs": 2,
            "episodes_per_epoch": 14,
            "batch_size": 4,
        }
        if "model" in changes:
            defaults |= {"backbone": None, "config": []}
        return HeadTrainingOptions(**{**defaults, **changes})

    return build


@pytest.fixture
def options(options_in, tmp_path):
    """The same in a fresh folder."""
    return lambda **changes: options_in(tmp_path / "out", **changes)


UNDISTURBED = {
    "epochs": 3,
    "episodes_per_epoch": 13,  # the last step of an epoch has a single episode
    "held_out": ["bolt"],
    "setups": ["N1A1", "N2A1"],
    "validation_every": 2,
}


@pytest.fixture(scope="package")
def undisturbed(options_in, tmp_path_factory):
    """Options and record of a run of twelve steps, to compare others with."""
    chosen = options_in(tmp_path_factory.mktemp("undisturbed"), **UNDISTURBED)
    return chosen, train_head(chosen)


def wide_teacher(seed=0, **changes):
    """Four heads of 8 channels, with weights large enough that every part of a layer shows in the features."""
    torch.manual_seed(seed)
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "patch_size": PATCH,
        "image_size": 12 * PATCH,
        "initializer_range": 0.3,
        "out_features": ["stage2"],
        "apply_layernorm": False,
    }
    return Dinov2Backbone(Dinov2Config(**{**settings, **changes})).eval()


@pytest.fixture(scope="session")
def distillation_in(tmp_path_factory):
    """Options of a distillation of six steps into a folder, with changes: a teacher and eight pictures."""
    root = tmp_path_factory.mktemp("distillation")
    wide_teacher().save_pretrained(root / "teacher")
    (root / "pictures").mkdir()
    generator = np.random.default_rng(0)
    for index in range(8):
        pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((SIDE, SIDE)).save(root / "pictures" / f"{index}.png")

    def build(folder, **changes):
        defaults = {
            "teacher": str(root / "teacher"),
            "images": [str(root / "pictures")],
            "output_dir": str(folder),
            "cache": str(root / "cache"),
            "stage": 2,
            "width": 16,
            "mlp_ratio": 4,
            "image_size": SIDE,
            "crops": 3,
            "textures": 2,
            "fit_images": 4,
            "held_out": 0.25,
            "steps": 6,
            "batch_size": 4,
            "learning_rate": 2e-3,
            "save_every": 2,
        }
        return DistillationOptions(**{**defaults, **changes})

    return build


@pytest.fixture
def distillation_options(distillation_in, tmp_path):
    """The same in a fresh folder."""
    return lambda **changes: distillation_in(tmp_path / "student", **changes)


@pytest.fixture(scope="package")
def distilled(distillation_in, tmp_path_factory):
    """Options of a distillation that has been run, to compare others with."""
    chosen = distillation_in(tmp_path_factory.mktemp("distilled"))
    Distillation(chosen).run()
    return chosen


def distillation_log(options):
    """The lines of the log of a distillation."""
    return [json.loads(line) for line in (options.output / LOG).read_text().splitlines()]


def command_line(options):
    """The words of a command line that says the same as these options."""
    words = []
    for name, value in asdict(options).items():
        if value is True:
            words.append(f"--{name}")
        elif isinstance(value, list) and value:
            words += [f"--{name}", *map(str, value)]
        elif value not in (None, False, []):
            words += [f"--{name}", str(value)]
    return words
