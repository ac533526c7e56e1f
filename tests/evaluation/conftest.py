"""A small target data set of drawn parts, and a tiny model in a folder."""

import datasets
import numpy as np
import pytest
from PIL import Image

from modeling_ideal import IdealImageProcessor

from ..conftest import PATCH, tiny_model

SIDE = 8 * PATCH


@pytest.fixture(autouse=True)
def datasets_cache(tmp_path_factory, monkeypatch):
    """The cache that `datasets` uses by default, away from the user's."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets_cache"))
    datasets.disable_progress_bars()


def save_part(root, category, kind, name, random):
    """A grey part with some noise; `scratch` and `hole` are defects with masks, `good` has none."""
    split = "train" if kind == "train" else "test"
    folder = root / category / split / ("good" if kind == "train" else kind)
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.full((SIDE, SIDE, 3), 120) + random.normal(0, 12, (SIDE, SIDE, 3))
    if kind in ("scratch", "hole"):
        mask = np.zeros((SIDE, SIDE), np.uint8)
        x, y = random.integers(2, SIDE - 12, 2)
        box = (slice(y, y + 3), slice(x, x + 10)) if kind == "scratch" else (slice(y, y + 8), slice(x, x + 8))
        mask[box] = 255
        pixels[box] = 240 if kind == "scratch" else 10
        truth = root / category / "ground_truth" / kind
        truth.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(truth / f"{name}_mask.png")
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{name}.png")


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """Two categories: `nut` with two types of defect, `bolt` with one."""
    root = tmp_path_factory.mktemp("target") / "parts"
    random = np.random.default_rng(0)
    for category, kinds in (("nut", ("scratch", "hole")), ("bolt", ("scratch",))):
        for kind, count in (("train", 3), ("good", 4), *((kind, 3) for kind in kinds)):
            for index in range(count):
                save_part(root, category, kind, f"{index:03}", random)
    return root


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A tiny IDEAL model with its processor."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)
    IdealImageProcessor(size=SIDE, patch_size=PATCH).save_pretrained(folder)
    return folder
