"""A small source data set, a tiny backbone and a tiny model in folders, and short runs on them."""

import numpy as np
import pytest

from modeling_ideal.training.head.options import TrainingArguments

from ..conftest import tiny_model
from ..evaluation.conftest import SIDE, datasets_cache, model_folder, save_part  # noqa: F401 - fixtures

TINY = [f"image_size={SIDE}", "num_deviation_vectors=5", "num_attention_heads=4", "top_fraction=0.1"]


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


@pytest.fixture
def arguments(source, backbone_folder, tmp_path):
    """Arguments of a run of eight steps from scratch, with changes."""

    def build(**changes):
        defaults = {
            "source": str(source),
            "backbone": str(backbone_folder),
            "output_dir": str(tmp_path / "out"),
            "cache": str(tmp_path / "features"),
            "config": TINY,
            "epochs": 2,
            "episodes_per_epoch": 14,
            "batch_size": 4,
        }
        if "model" in changes:
            defaults |= {"backbone": None, "config": []}
        return TrainingArguments(**{**defaults, **changes})

    return build
