"""What runs the backbone fastest on this CPU, and what that costs: ViT-S/14 at 448 px, batch 1.

With IDEAL_BACKBONE, the folder of a pre-trained backbone, and IDEAL_DATA, a folder with pictures `good/*.jpg` of one
product somewhere below, the loss is measured too. OpenVINO takes part where it is installed.
"""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel
from modeling_ideal.backbone import patch_features
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.export.onnx import export_backbone
from modeling_ideal.onnx_backbone import OnnxBackbone
from modeling_ideal.threads import lone_threads

ROUNDS = 3
PICTURES = 6  # besides the two that are the references

Encode = Callable[[Tensor], Tensor]  # an image (1, 3, H, W) to patch features (1, h, w, C)


def build() -> IdealModel:
    torch.manual_seed(0)
    folder = os.environ.get("IDEAL_BACKBONE")
    model = IdealModel.from_backbone(folder) if folder else IdealModel(IdealConfig(deviation_encoder=None))
    return model.eval()


def read_pictures(count: int) -> list[Tensor]:
    """Pictures of one product (1, 3, H, W), each; none without IDEAL_DATA."""
    folder = os.environ.get("IDEAL_DATA")
    files = sorted(Path(folder).rglob("good/*.jpg"))[:count] if folder else []
    return [IdealImageProcessor()(query=file)["query"] for file in files]


def encoders(model: IdealModel, folder: Path) -> dict[str, Encode]:
    """Ways to run the backbone, by name."""

    def of(backbone: nn.Module) -> Encode:
        return lambda image: patch_features(backbone, image, model.config.patch_size)

    found = {"torch": of(model.backbone), "torch.compile": of(torch.compile(model.backbone))}
    quantised = torch.ao.quantization.quantize_dynamic(model.backbone, {nn.Linear}, dtype=torch.qint8)
    found["torch, int8"] = of(quantised)
    for name, int8 in (("ONNX Runtime", False), ("ONNX Runtime, int8", True)):
        file = folder / f"{name}.onnx"
        export_backbone(model, file, int8=int8)
        found[name] = of(OnnxBackbone(file))
    if find_spec("openvino") is not None:
        import openvino

        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        compiled = openvino.Core().compile_model(folder / "ONNX Runtime.onnx", "CPU", settings)
        found["OpenVINO"] = lambda image: torch.from_numpy(compiled(image.numpy())[0]).permute(0, 2, 3, 1)
    return found


def loss(model: IdealModel, encode: Encode, images: list[Tensor]) -> tuple[float, float]:
    """Mean cosine of patch features to those of torch, and mean change of the score, references encoded likewise."""
    cosines, changes = [], []
    expected, got = ([way(image) for image in images] for way in (model.extract_features, encode))
    for features, others in zip(expected, got, strict=True):
        cosines.append(F.cosine_similarity(features, others, dim=-1).mean())
    for image in range(2, len(images)):
        changes.append(score(model, got, image) - score(model, expected, image))
    return float(torch.stack(cosines).mean()), float(torch.stack(changes).abs().mean())


def score(model: IdealModel, features: list[Tensor], image: int) -> Tensor:
    """The score of an image: the mean of its 1 % highest distances to the normal patches of the first two."""
    normal = F.normalize(torch.cat([each.flatten(0, 2) for each in features[:2]]), dim=-1)
    nearest = (F.normalize(features[image].flatten(0, 2), dim=-1) @ normal.T).amax(1)
    return ((1 - nearest) / 2).topk(max(1, round(model.config.top_fraction * len(nearest)))).values.mean()


def by_core(encode: Encode, image: Tensor, pool: ThreadPoolExecutor) -> None:
    """As many pictures at once as torch has threads, one for each."""
    list(pool.map(torch.inference_mode()(encode), [image] * torch.get_num_threads()))


@torch.inference_mode()
def measure() -> dict[str, float]:
    model, threads = build(), torch.get_num_threads()
    images = read_pictures(2 + PICTURES)
    image = images[0] if images else torch.randn(1, 3, 448, 448)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, lone_threads(threads) as pool:
        ways = encoders(model, Path(folder))
        tasks = {name: lambda encode=encode: encode(image) for name, encode in ways.items()}
        tasks["torch, a picture for each core"] = lambda: by_core(ways["torch"], image, pool)
        seconds = interleaved_medians(tasks, ROUNDS)
        seconds["torch, a picture for each core"] /= threads
        figures["torch, ms"] = seconds["torch"] * 1e3
        figures |= {f"{name}, in forwards of torch": value / seconds["torch"] for name, value in seconds.items()}
        for name, encode in ways.items() if images else ():
            cosine, change = loss(model, encode, images)
            figures |= {f"{name}, mean cosine": cosine, f"{name}, mean change of scores": change}
    return figures
