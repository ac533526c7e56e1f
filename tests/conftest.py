"""Tiny random models and pictures; real data only where the environment names it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Some virtual machines announce AMX and then refuse it: bfloat16 products die of an illegal instruction there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
# Processes of pytest-xdist share the cores: threads that wait for each other across them take many times as long.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# What starts the tests in the background may have Ctrl-C ignored, and the processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel

from .hub_server import serve

PATCH = 4
COMMIT = "0123456789abcdef" * 2 + "01234567"  # that the repository of the tests says it was built from
SHARED = Path(__file__).resolve().parents[2] / "shared"


def tiny_config(**changes):
    """A model of a few thousand weights: DINOv2 with 4-pixel patches and 16 channels."""
    backbone = AutoConfig.for_model(
        "dinov2",
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        patch_size=PATCH,
        image_size=8 * PATCH,
        out_features=["stage2"],
    )
    defaults = {
        "backbone_config": backbone,
        "image_size": 8 * PATCH,
        "num_deviation_vectors": 5,
        "num_attention_heads": 4,
        "top_fraction": 0.1,
    }
    return IdealConfig(**{**defaults, **changes})


def tiny_model(seed=0, **changes):
    """A tiny model whose encoder answers to its references: freshly initialised ones hardly do."""
    torch.manual_seed(seed)
    model = IdealModel(tiny_config(**changes))
    with torch.no_grad():
        for parameter in model.deviation_encoder.parameters() if model.deviation_encoder is not None else ():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def random_images(*shape, seed=0, size=(8 * PATCH, 8 * PATCH)):
    """Normalised random images (*shape, 3, H, W)."""
    return torch.randn(*shape, 3, *size, generator=torch.Generator().manual_seed(seed))


def random_masks(*shape, size=(8 * PATCH, 8 * PATCH)):
    """Masks (*shape, H, W) with a block of anomalous pixels each."""
    masks = torch.zeros(*shape, *size)
    masks[..., size[0] // 4 : size[0] // 2, : max(1, size[1] // 3)] = 1
    return masks


@pytest.fixture
def model():
    return tiny_model()


@pytest.fixture
def episode():
    """Three queries, two normal and two abnormal references with masks."""
    return {
        "query": random_images(3, seed=1),
        "normal_refs": random_images(2, seed=2),
        "abnormal_refs": random_images(2, seed=3),
        "masks": random_masks(2),
    }


@pytest.fixture
def picture():
    """A colour picture, wider than high, smooth as photographs are."""
    values = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((40, 30), Image.Resampling.BICUBIC)


@pytest.fixture(scope="session")
def real_backbone():
    """The folder of a real pre-trained ViT-S/14."""
    folder = Path(os.environ.get("IDEAL_BACKBONE", SHARED / "weights" / "dinov2-vits14"))
    if not folder.is_dir():
        pytest.skip(f"no pre-trained backbone at IDEAL_BACKBONE ({folder.name})")
    return folder


@pytest.fixture(scope="session")
def real_data():
    """The folder of the real photographs."""
    folder = Path(os.environ.get("IDEAL_DATA", SHARED / "data"))
    if not folder.is_dir():
        pytest.skip(f"no photographs at IDEAL_DATA ({folder.name})")
    return folder


@pytest.fixture
def hub():
    """A Hub on loopback, empty."""
    with serve(seconds=1200) as hub:  # a slow machine runs several processes against it
        yield hub


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A tiny model and its processor, as they are saved after training."""
    folder = tmp_path_factory.mktemp("trained") / "tiny"
    tiny_model().save_pretrained(folder)
    IdealImageProcessor(size=8 * PATCH, patch_size=PATCH).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def repository(tiny_folder, tmp_path_factory):
    """A Hub repository of it, its weights in half precision; made once, since it is verified in a fresh process."""
    from hub import build

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "source_commit", lambda: COMMIT)
        return build.build(tiny_folder, tmp_path_factory.mktemp("built") / "ideal", dtype="float16")


@pytest.fixture
def modules_cache(tmp_path, monkeypatch):
    """Where remote code that this process loads is copied to, away from the user's."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(tmp_path / "modules")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch with so many threads, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
