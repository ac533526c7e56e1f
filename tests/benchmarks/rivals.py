"""What each method adds to the backbone at N1A1, references encoded once: ViT-S/14 at 448 px, random weights.

In seconds of the processor and one thread, so that a busy machine changes the ratios little.
"""

import time

import torch

from modeling_ideal import IdealConfig, IdealModel
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.evaluation.methods import METHODS
from modeling_ideal.evaluation.methods.context import Context, Query
from modeling_ideal.evaluation.protocol.scorer import encode_context
from modeling_ideal.evaluation.rival_method import RivalMethod
from modeling_ideal.training.rivals.registry import make_rival

from ..conftest import threads
from .scoring import SIDE

ROUNDS = 5
TRAINING_FREE = ("anomaly_dino", "coreset", "subspace")
IDEAL = {
    "alignment": "contrast",
    "share_normals": True,
    "patch_smoothing": 0.5,
    "num_rotations": 8,
}  # as in the tables


@torch.inference_mode()
def measure() -> dict[str, float]:
    torch.manual_seed(0)
    model = IdealModel(IdealConfig(**IDEAL)).eval()
    images = torch.randn(3, 3, SIDE, SIDE)
    query, normal, abnormal = model.extract_features(images).split(1)  # (1, h, w, C) each
    marked = torch.zeros(query.shape[:3], dtype=torch.bool)
    marked[0, 12:20, 12:20] = True
    poses = torch.randn(1, 7, *query.shape[1:])
    context = Context(normal, abnormal, marked, turn=lambda: poses)
    rivals = {name: make_rival(name, query.shape[-1], {}) for name in ("nagl", "resad", "foundad")}
    rivals |= {
        f"{name} with the eraser": make_rival(name, query.shape[-1], {"denoise": True}) for name in ("nagl", "resad")
    }
    methods = {name: METHODS[name] for name in TRAINING_FREE}
    methods |= {name: RivalMethod(rival) for name, rival in rivals.items()}
    encoded = encode_context(model, context)
    tasks = {"backbone": lambda: model.extract_features(images[:1])}
    tasks["ideal"] = lambda: model.score_features(query, encoded, (SIDE, SIDE))
    tasks |= {
        name: lambda method=method: method(Query(query[0].flatten(0, 1), context, tuple(query.shape[1:3])))
        for name, method in methods.items()
    }
    with threads(1):
        seconds = interleaved_medians(tasks, ROUNDS, time.process_time)
    backbone = seconds.pop("backbone")
    return {f"{name}, in backbone forwards": value / backbone for name, value in seconds.items()}
