"""Everything computes on the device of the model: seen with a pretended one, which refuses to mix."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences, devices
from modeling_ideal.calibration import encode_calibrated
from modeling_ideal.devices import best_device, choose_device
from modeling_ideal.evaluation.methods import METHODS
from modeling_ideal.evaluation.methods.normal_matching import POSES
from modeling_ideal.evaluation.pictures.deviations import sample_deviations
from modeling_ideal.evaluation.protocol.scorer import Scorer
from modeling_ideal.normal_variation_eraser import symmetric_eigen
from modeling_ideal.onnx_backbone import OnnxBackbone
from modeling_ideal.training.head.batches import read_episode
from modeling_ideal.training.head.objective import EpisodeLoss
from modeling_ideal.training.launch import make_accelerator

from .conftest import PATCH, tiny_model
from .pictures import photograph
from .pretended_device import NAME, pretended_device

SIDE = 8 * PATCH


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(devices, "WITHOUT_LINEAR_ALGEBRA", ("mps", NAME))
    with pretended_device() as pretended:
        yield pretended


def pictures(count, seed=0):
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def masks(count):
    mask = torch.zeros(count, SIDE, SIDE)
    mask[:, 8:20, 8:20] = 1
    return mask


def test_the_pretended_device_refuses_to_mix(device):
    there = torch.ones(2).to(device)
    assert there.device == device
    assert (there + 1).cpu().tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="expected all tensors on pretended, got some on the CPU"):
        there + torch.ones(2)
    with pytest.raises(NotImplementedError, match="pretended has no such operation"):
        torch.linalg.eigh(torch.eye(3).to(device))
    with pytest.raises(TypeError, match="pretended has no float64"):
        there.double()


def test_eigenvectors_where_the_device_has_none(device):
    matrices = pictures(1)[0] @ pictures(1)[0].mT
    values, vectors = symmetric_eigen(matrices.to(device))
    assert values.device == vectors.device == device
    torch.testing.assert_close(values.cpu(), torch.linalg.eigh(matrices).eigenvalues)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alignment": "euclidean", "residual_anchor": "centroid", "patch_smoothing": 0.7},
        {"alignment": "contrast", "loss_form": "two_channel", "share_normals": True},
    ],
)
def test_model_and_loss(device, settings):
    queries, normal, abnormal = pictures(2), pictures(3, 1), pictures(2, 2)
    targets = {"query_masks": masks(2), "labels": torch.tensor([0, 1])}
    expected = tiny_model(**settings)(queries, normal, abnormal, masks(2), **targets)
    model = tiny_model(**settings).to(device)
    found = model(queries, normal, abnormal, masks(2), **targets)
    for name in ("scores", "anomaly_maps", "loss"):
        assert getattr(found, name).device == device
        torch.testing.assert_close(getattr(found, name).cpu(), getattr(expected, name), atol=1e-4, rtol=1e-4)
    for given in ((normal, abnormal, None), (None, abnormal, masks(2)), (normal, None, None)):
        assert model(queries, *given).scores.device == device


@pytest.mark.parametrize("count", [1, 3])
def test_references_and_their_calibration(device, tmp_path, count):
    model = tiny_model().to(device)
    references = encode_calibrated(model, pictures(count, 1), pictures(count, 2), masks(count))
    references.save(tmp_path / "a.safetensors")
    loaded = IdealReferences.load(tmp_path / "a.safetensors")
    assert loaded.normal_features[0].device.type == "cpu"
    torch.testing.assert_close(
        model(pictures(2), references=loaded).scores, model(pictures(2), references=references).scores
    )


def test_a_model_moved_by_hand_takes_the_pipeline_along(device):
    processor = IdealImageProcessor(size=SIDE, patch_size=PATCH)
    parts = [photograph(seed) for seed in range(4)]
    marks = [(4, 4, 20, 16)] * 2
    for pipe in (
        AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor, device=device),
        AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor),
    ):
        pipe.model.to(device)
        given = {"normal": parts[:2], "abnormal": parts[2:], "masks": marks}
        wanted = {"return_mask": True, "return_regions": True, "return_overlay": True, "threshold": 0.0}
        results = pipe(parts, **given, **wanted, types=["dent", "scratch"], batch_size=3)
        assert all(result["type"] in ("dent", "scratch", "unknown") for result in results)
        pipe(parts[0], **given, ignore_mask=(0, 0, 10, 10))


@pytest.mark.parametrize("marks", [[(4, 4, 20, 16)], None])
def test_tiles(device, marks):
    processor = IdealImageProcessor(size=SIDE, patch_size=PATCH)
    pipe = AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor, device=device)
    pipe.set_references(normal=[photograph(0), photograph(1)], abnormal=[photograph(2)], masks=marks, tiling=True)
    assert 0 <= pipe(photograph(3))["score"] <= 1


class Features:
    """What the feature cache answers, without a folder: features as float16 on the CPU."""

    labels = (0, 0, 1, 1)

    def __init__(self, model):
        self.stored = torch.cat([model.extract_features(pictures(1, seed)) for seed in range(4)]).cpu().half()

    def features(self, indices):
        return self.stored[list(indices)]

    def has_mask(self, index):
        return True

    def pixel_masks(self, indices):
        return torch.stack([masks(1)[0].bool() & bool(self.labels[index]) for index in indices])

    def patch_masks(self, indices):
        return self.pixel_masks(indices)[:, ::PATCH, ::PATCH]


@torch.no_grad()
def test_every_method_of_an_evaluation(device):
    model = tiny_model().to(device)

    def turn(indices):
        return model.extract_features(pictures((POSES - 1) * len(indices))).unflatten(0, (len(indices), POSES - 1))

    scorer = Scorer(Features(model), None, [*METHODS, "ideal"], model, {"ideal": model}, turn)
    context = scorer.context([0, 1], [2])
    scores = scorer.patch_scores(context, [1, 3])
    assert {name: part.device.type for name, part in scores.items()} == dict.fromkeys(scores, "cpu")
    sample = sample_deviations.__wrapped__  # without inference mode, in which torch hides calls from the pretence
    assert set(sample(scorer, context, [1, 3]).kinds) == {"residual", "denoised", "projected"}


def test_an_episode_of_training(device):
    model = tiny_model().to(device).train()
    episode = SimpleNamespace(query=3, normal=[0, 1], abnormal=[2])
    loss = EpisodeLoss(model)([read_episode(Features(model), episode, 0, device)])["loss"]
    assert loss.device == device


def test_gradients():
    """In a process of its own: autograd does not notice a device that comes after its first gradient."""
    script = Path(__file__).with_name("device_gradients.py")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_backbone_of_onnx_runtime_returns_to_the_device(device):
    backbone = OnnxBackbone.__new__(OnnxBackbone)
    torch.nn.Module.__init__(backbone)
    backbone.size = (3, SIDE, SIDE)
    backbone.session = SimpleNamespace(run=lambda _, inputs: [next(iter(inputs.values()))])
    assert backbone(pictures(1).to(device)).feature_maps[0].device == device


def test_the_best_device_is_the_accelerator(device):
    assert best_device().type == choose_device(None).type == NAME
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device(NAME).type == NAME
    with pytest.raises(
        ValueError, match=r"--device: expected one of \['cpu', 'pretended'\] on this machine, got 'cuda'"
    ):
        choose_device("cuda")


@pytest.mark.parametrize("name", ["nonsense", "meta", "cpu:x", ""])
def test_a_device_that_is_not_there(name):
    with pytest.raises(ValueError, match=r"--device: expected one of .*'cpu'"):
        choose_device(name)


def test_training_takes_the_device(monkeypatch):
    assert make_accelerator("cpu").device.type == "cpu"
    with pytest.raises(ValueError, match="--device: expected one of"):
        make_accelerator("nonsense")


@pytest.mark.parametrize(("rank", "expected"), [(None, "cuda"), ("1", "cuda:1"), ("5", "cuda:1")])
def test_processes_of_a_launcher_take_a_device_each(monkeypatch, rank, expected):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert best_device() == torch.device(expected)
