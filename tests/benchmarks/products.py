"""Matrix products in float32 by torch's usual library and by oneDNN: backbone and search, on this processor."""

from unittest.mock import patch

import torch

from modeling_ideal import IdealConfig, IdealModel, matrix_products
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.matrix_products import inner_products, onednn_is_faster

ROUNDS = 9
WAYS = {"usual": False, "oneDNN": True}


@torch.inference_mode()
def measure() -> dict[str, float]:
    torch.manual_seed(0)
    model, image = IdealModel(IdealConfig(deviation_encoder=None)), torch.randn(1, 3, 448, 448)
    patches, bank = torch.randn(1024, 384), torch.randn(8192, 384)
    work = {
        "backbone, ViT-S/14 at 448 px": lambda: model.extract_features(image),
        "search, 1,024 patches among 8,192": lambda: inner_products(patches, bank),
    }

    def run(task, onednn: bool) -> torch.Tensor:
        with patch.object(matrix_products, "onednn_is_faster", lambda: onednn):
            return task()

    figures = {"oneDNN is taken here": float(onednn_is_faster())}
    for name, task in work.items():
        expected, got = (run(task, onednn) for onednn in WAYS.values())
        seconds = interleaved_medians({way: lambda way=way, task=task: run(task, WAYS[way]) for way in WAYS}, ROUNDS)
        figures[f"{name}: usual, ms"] = seconds["usual"] * 1e3
        figures[f"{name}: oneDNN, share of the usual"] = seconds["oneDNN"] / seconds["usual"]
        figures[f"{name}: largest difference, 1e-6 of the largest value"] = float(
            1e6 * (got - expected).abs().max() / expected.abs().max()
        )
    return figures
