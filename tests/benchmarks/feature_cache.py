"""Reading a batch of 16 N1A1 training episodes from the feature cache, against one ViT-S/14 forward at 448 px."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import Dinov2Backbone, Dinov2Config

from modeling_ideal.data import load_records
from modeling_ideal.data.catalogue import Catalogue
from modeling_ideal.data.episodes import Episode, TrainingEpisodes
from modeling_ideal.data.feature_cache import FeatureCache, encode_records
from modeling_ideal.evaluation.cost.timing import interleaved_medians

SIDE = 448
BATCH = 16
ROUNDS = 15


class RandomEncoder:
    """Features of the right size without the cost: what is measured is reading."""

    fingerprint = "random"

    def __call__(self, images: list[Image.Image]) -> torch.Tensor:
        return torch.randn(len(images), SIDE // 14, SIDE // 14, 384)

    def prepare_mask(self, mask: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(mask.resize((SIDE, SIDE), Image.Resampling.NEAREST)))


def write_pictures(root: Path) -> None:
    """A data set of 64 training and 128 test images."""
    noise = np.random.default_rng(0)
    for folder, count in (("train/good", 64), ("test/good", 64), ("test/cut", 64)):
        (root / folder).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(noise.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(root / folder / f"{number}.png")
    (root / "ground_truth/cut").mkdir(parents=True)
    for number in range(64):
        mask = Image.fromarray((noise.random((32, 32)) > 0.9).astype(np.uint8) * 255)
        mask.save(root / f"ground_truth/cut/{number}_mask.png")


def read(cache: FeatureCache, episodes: list[Episode], buffers: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
    """All that a training step needs of a batch."""
    queries = [episode.query for episode in episodes]
    normals = [index for episode in episodes for index in episode.normal]
    abnormals = [index for episode in episodes for index in episode.abnormal]
    features = [
        cache.features(indices, out) for indices, out in zip((queries, normals, abnormals), buffers, strict=True)
    ]
    return [*features, cache.patch_masks(abnormals), cache.pixel_masks(queries)]


@torch.inference_mode()
def measure() -> dict[str, float]:
    torch.manual_seed(0)
    config = Dinov2Config(hidden_size=384, num_attention_heads=6, patch_size=14, out_features=["stage12"])
    backbone = Dinov2Backbone(config).eval()
    image = torch.randn(1, 3, SIDE, SIDE)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "data")
        write_pictures(root)
        records = load_records(root, cache_dir=Path(folder, "records"))
        cache = encode_records(records, RandomEncoder(), Path(folder, "features"))
        sampler = TrainingEpisodes(Catalogue.from_records(records))
        batches = iter([sampler.epoch(epoch)[:BATCH] for epoch in range(2 * (ROUNDS + 1))])
        nothing = (None, None, None)
        buffers = tuple(read(cache, sampler.epoch(0)[:BATCH], nothing)[:3])
        seconds = interleaved_medians(
            {
                "backbone": lambda: backbone(image),
                "into new memory": lambda: read(cache, next(batches), nothing),
                "into given memory": lambda: read(cache, next(batches), buffers),
            },
            ROUNDS,
        )
    forward = seconds.pop("backbone")
    figures = {"backbone forward, ms": forward * 1e3}
    figures |= {
        f"16 N1A1 episodes read {name}, in backbone forwards": value / forward for name, value in seconds.items()
    }
    return figures
