"""What IDEAL adds to its backbone: ViT-S/14 at 448 px, batch 1, random weights, against one backbone forward."""

import json
import subprocess
import sys

import torch

from modeling_ideal import IdealConfig, IdealModel, IdealReferences
from modeling_ideal.evaluation.cost.memory import peak_mebibytes, reset_peak
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.matrix_products import fast_layers
from modeling_ideal.normal_variation_eraser import nearest_normals, unit

SIDE = 448
ROUNDS = 25


def build() -> tuple[IdealModel, torch.Tensor]:
    torch.manual_seed(0)
    return IdealModel(IdealConfig()), torch.randn(1, 3, SIDE, SIDE)


def forward(model: IdealModel, image: torch.Tensor) -> object:
    """The bare backbone, with products by the same library as in IDEAL."""
    with fast_layers():
        return model.backbone(image)


def reference_images(num_normal: int, num_abnormal: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    masks = torch.zeros(num_abnormal, SIDE, SIDE)
    masks[:, 100:180, 150:260] = 1
    return torch.randn(num_normal, 3, SIDE, SIDE), torch.randn(num_abnormal, 3, SIDE, SIDE), masks


def plain_erase(model: IdealModel, patches: torch.Tensor, references: IdealReferences) -> torch.Tensor:
    """Eq. 1-4 the obvious way, with (patches, k, C) tensors."""
    config, normals = model.config, references.normal_features[0]
    _, places = nearest_normals(unit(patches), references.normal_directions[0], config.num_neighbors)
    neighbors = normals[places]  # (N, k, C)
    residual = patches - neighbors[:, 0]
    centred = neighbors - neighbors.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(centred @ centred.mT)  # (N, k), (N, k, k); svd of (N, k, C) is slower still
    values, vectors = values[:, -config.num_components :], vectors[..., -config.num_components :]
    basis = centred.mT @ (vectors / values.sqrt()[:, None])  # (N, C, r)
    inside = (basis @ (basis.mT @ residual[..., None]))[..., 0]
    return residual - config.erase_strength * inside


@torch.inference_mode()
def measure() -> dict[str, float]:
    model, image = build()
    images = {"N1A1": reference_images(1, 1), "N8A4": reference_images(8, 4)}
    encoded = {name: model.encode_references(*parts) for name, parts in images.items()}
    features = model.extract_features(image)
    patches = features[0].flatten(0, 1)
    for references in encoded.values():
        ours = model.deviations(patches, references.normal_features[0], references.normal_directions[0]).denoised
        torch.testing.assert_close(plain_erase(model, patches, references), ours, atol=1e-3, rtol=0)
    tasks = {"backbone": lambda: forward(model, image)}
    for name, references in encoded.items():
        bank = (references.normal_features[0], references.normal_directions[0])
        tasks |= {
            f"{name} scored": lambda references=references: model(image, references=references),
            f"{name} scored, without the backbone": lambda references=references: model.score_features(
                features, references, (SIDE, SIDE)
            ),
            f"{name} erased": lambda bank=bank: model.deviations(patches, *bank),
            f"{name} erased plainly": lambda references=references: plain_erase(model, patches, references),
        }
    tasks["N1A1 encoded again"] = lambda: model(image, *images["N1A1"])
    seconds = interleaved_medians(tasks, ROUNDS)
    backbone = seconds.pop("backbone")
    figures = {"backbone forward, ms": backbone * 1e3}
    figures |= {f"{name}, in backbone forwards": value / backbone for name, value in seconds.items()}
    return figures | memory()


def memory() -> dict[str, float]:
    """Peak memory beyond that of the backbone's forward, the references included, in processes of their own."""
    return {
        f"{what} at N8A4, peak extra MB": json.loads(
            subprocess.run(
                [sys.executable, "-m", __name__, what], check=True, capture_output=True, text=True
            ).stdout.splitlines()[-1]
        )
        for what in ("scoring", "encoding")
    }


@torch.inference_mode()
def print_peak(what: str) -> None:
    model, image = build()
    parts, fingerprint = reference_images(8, 4), model.fingerprint
    model(image, *reference_images(1, 1))  # what torch sets up once
    reset_peak()
    forward(model, image)
    before = peak_mebibytes()
    reset_peak()
    if what == "encoding":
        model.encode_references(*parts)
    else:
        vectors = torch.randn(1, model.config.num_deviation_vectors, 384)
        references = IdealReferences([torch.randn(8 * 1024, 384)], vectors, fingerprint=fingerprint)
        model(image, references=references)
    print(json.dumps(peak_mebibytes() - before))


if __name__ == "__main__":
    print_peak(sys.argv[1])
