"""The exported backbone: the same scores, for any batch, and a model that stays as it was."""

import argparse
import copy

import pytest
import torch

from modeling_ideal.cli import main
from modeling_ideal.evaluation import command
from modeling_ideal.export.onnx import export_backbone, feature_difference
from modeling_ideal.onnx_backbone import OnnxBackbone

from .conftest import random_images, random_masks, tiny_model

REFERENCES = (random_images(2, seed=2), random_images(1, seed=3), random_masks(1))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A float32 and an int8 file, the model they were made from, and its weights and scores before that."""
    folder = tmp_path_factory.mktemp("onnx")
    model = tiny_model()
    before = copy.deepcopy(model.state_dict()), model(random_images(3), *REFERENCES).scores
    for name in ("float32", "int8"):
        export_backbone(model, folder / f"{name}.onnx", int8=name == "int8")
    assert {path.name for path in folder.iterdir()} == {"float32.onnx", "int8.onnx"}
    return folder, model, before


def with_onnx(path):
    """The same model with the exported backbone."""
    model = tiny_model()
    model.backbone = OnnxBackbone(path)
    return model


def test_exporting_changes_nothing(exported):
    _, model, (state, scores) = exported
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(random_images(3), *REFERENCES).scores, scores)
    assert not model.training


@pytest.mark.parametrize("batch", [1, 3])
def test_scores_are_equal(exported, batch):
    folder, model, _ = exported
    query = random_images(batch, seed=7)
    found, expected = with_onnx(folder / "float32.onnx")(query, *REFERENCES), model(query, *REFERENCES)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.patch_scores, expected.patch_scores, atol=1e-4, rtol=0)


def test_a_model_without_trained_weights_scores_too(exported):
    folder, _, _ = exported
    model, other = (tiny_model(deviation_encoder=None, alignment="contrast", share_normals=True) for _ in range(2))
    other.backbone = OnnxBackbone(folder / "float32.onnx")
    query = random_images(2, seed=7)
    expected = model(query, *REFERENCES).patch_scores
    torch.testing.assert_close(other(query, *REFERENCES).patch_scores, expected, atol=1e-4, rtol=0)


def test_int8_is_smaller_and_near(exported):
    folder, model, _ = exported
    assert feature_difference(model, folder / "float32.onnx") < 1e-5
    assert 1e-4 < feature_difference(model, folder / "int8.onnx") < 0.1


def test_references_belong_to_the_backbone_that_encoded_them(exported):
    folder, model, _ = exported
    models = [model, *(with_onnx(folder / f"{name}.onnx") for name in ("float32", "int8"))]
    assert len({one.fingerprint for one in models}) == 3
    references = models[1].encode_references(*REFERENCES)
    query = random_images(1)
    assert torch.equal(
        with_onnx(folder / "float32.onnx")(query, references=references).scores, models[1](query, *REFERENCES).scores
    )
    for other in (models[0], models[2]):
        with pytest.raises(ValueError, match="expected a set encoded by this model"):
            other(query, references=references)


def test_another_size_and_other_weights_are_refused(exported, tmp_path):
    folder, _, _ = exported
    with pytest.raises(ValueError, match=r"expected images \(B, 3, 32, 32\), .* got \(1, 3, 64, 64\)"):
        OnnxBackbone(folder / "float32.onnx")(random_images(1, size=(64, 64)))
    with pytest.raises(ValueError, match=r"expected weights in float32 on the CPU, got .*float16"):
        export_backbone(tiny_model().half(), tmp_path / "half.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_commands_export_and_evaluate(exported, tiny_folder, tmp_path, monkeypatch, capsys):
    folder, _, _ = exported

    def copied(model, path, int8):
        assert int8
        path.write_bytes((folder / "int8.onnx").read_bytes())

    monkeypatch.setattr("modeling_ideal.export.onnx.export_backbone", copied)
    out = tmp_path / "int8.onnx"
    assert main(["export", "--model", str(tiny_folder), "--out", str(out), "--int8"]) == 0
    assert "int8.onnx: 0.0 MB, patch features" in capsys.readouterr().out
    evaluated, _ = command._load(argparse.Namespace(model=str(tiny_folder), onnx=str(out)))
    assert evaluated.fingerprint == with_onnx(folder / "int8.onnx").fingerprint
