"""One N1A1 training episode on cached features, forward and backward, against one ViT-S/14 forward at 448 px."""

import tempfile
from pathlib import Path

import torch

from modeling_ideal import IdealConfig, IdealModel
from modeling_ideal.data import load_records
from modeling_ideal.data.catalogue import Catalogue
from modeling_ideal.data.episodes import TrainingEpisodes
from modeling_ideal.data.feature_cache import encode_records
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.training.head.batches import Batches
from modeling_ideal.training.head.objective import EpisodeLoss
from modeling_ideal.training.head.schedule import build_optimizer

from .feature_cache import BATCH, SIDE, RandomEncoder, write_pictures

ROUNDS = 7
PART = 4  # episodes at a time: what --gradient_accumulation 4 makes of a batch


def measure() -> dict[str, float]:
    torch.manual_seed(0)
    model = IdealModel(IdealConfig()).train()
    objective = EpisodeLoss(model)
    optimizer = build_optimizer(model.deviation_encoder.parameters(), 1e-3)
    image = torch.randn(1, 3, SIDE, SIDE)

    def backbone() -> None:
        with torch.inference_mode():
            model.backbone(image)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "data")
        write_pictures(root)
        records = load_records(root, cache_dir=Path(folder, "records"))
        cache = encode_records(records, RandomEncoder(), Path(folder, "features"))
        sampler = TrainingEpisodes(Catalogue.from_records(records))
        batches = Batches(sampler, cache, BATCH, torch.device("cpu"))
        coming = batches.read_from(0, 3 * (ROUNDS + 1))

        def step(part: int) -> None:
            """Reading, losses, backward and the optimiser's step of one batch."""
            episodes = next(coming).episodes
            for start in range(0, BATCH, part):
                (objective(episodes[start : start + part])["loss"] * part / BATCH).backward()
            optimizer.step()
            optimizer.zero_grad()

        seconds = interleaved_medians(
            {
                "backbone": backbone,
                f"in batches of {BATCH}": lambda: step(BATCH),
                f"in batches of {BATCH}, {PART} at a time": lambda: step(PART),
            },
            ROUNDS,
        )
        coming.close()
    forward = seconds.pop("backbone")
    figures = {"backbone forward, ms": forward * 1e3}
    figures |= {
        f"an N1A1 training episode {name}, in backbone forwards": value / BATCH / forward
        for name, value in seconds.items()
    }
    return figures
