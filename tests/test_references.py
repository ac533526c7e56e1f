"""Encoded references: saved and loaded as safetensors, whole or not at all."""

import json
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from modeling_ideal import IdealReferences
from modeling_ideal.reference_scores import ReferenceScores

from .conftest import random_images, random_masks, tiny_model


@pytest.fixture
def references(model):
    return model.encode_references(random_images(2), random_images(1, seed=1), random_masks(1))


def test_save_and_load_change_nothing(model, references, tmp_path):
    references.save(tmp_path / "part.safetensors")
    loaded = IdealReferences.load(tmp_path / "part.safetensors")
    query = random_images(3, seed=2)
    for name, value in model(query, references=references).items():
        assert torch.equal(value, model(query, references=loaded)[name]), name
    assert repr(loaded) == repr(references)
    targets = {"query_masks": random_masks(3), "labels": torch.tensor([0, 1, 1])}
    loss = model(query, references=references, **targets).loss
    assert torch.equal(loss, model(query, references=loaded, **targets).loss)


def test_normal_references_alone_and_several_sets(model, tmp_path):
    for count, references in (
        (1, model.encode_references(random_images(2))),
        (3, model.encode_references(random_images(3, 2), random_images(3, 1, seed=1), random_masks(3, 1))),
    ):
        references.save(tmp_path / "part.safetensors")
        loaded = IdealReferences.load(tmp_path / "part.safetensors")
        assert len(loaded) == count
        query = random_images(3, seed=2)
        assert torch.equal(model(query, references=references).scores, model(query, references=loaded).scores)


def test_it_says_what_it_is(references, model):
    text = repr(references)
    assert "1 set(s) of 2 normal and 1 abnormal, defects marked" in text
    assert model.fingerprint[:12] in text


def test_the_file_is_plain_safetensors(references, tmp_path):
    references.save(tmp_path / "part.safetensors")
    with safe_open(tmp_path / "part.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "ideal-references-2"
        assert json.loads(file.metadata()["header"])["fingerprint"] == references.fingerprint
        expected = {"normal_features.0", "deviation_vectors", "abnormal_deviations.0", "abnormal_sources.0"}
        assert set(file.keys()) == expected


def test_a_failed_save_leaves_the_old_file(references, tmp_path, monkeypatch):
    path = tmp_path / "part.safetensors"
    references.save(path)
    before = path.read_bytes()

    def fail(tensors, filename, metadata):
        filename.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("modeling_ideal.references.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        references.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_types_of_defects_go_with_the_file(model, tmp_path):
    references = model.encode_references(random_images(1), random_images(3, seed=1), random_masks(3))
    assert references.abnormal_sources[0].bincount().tolist() == [len(references.abnormal_deviations[0]) // 3] * 3
    replace(references, types=["scratch", "dent", "scratch"]).save(tmp_path / "part.safetensors")
    loaded = IdealReferences.load(tmp_path / "part.safetensors")
    assert loaded.types == ["scratch", "dent", "scratch"]
    assert "types ['dent', 'scratch']" in repr(loaded)
    with pytest.raises(ValueError, match=r"types: expected one for each of 3 abnormal references, got \['dent'\]"):
        replace(references, types=["dent"])


def test_other_files_are_refused(tmp_path):
    text = tmp_path / "part.safetensors"
    text.write_text("not tensors at all")
    with pytest.raises(ValueError, match=r"expected a safetensors file of IDEAL references, got .*part.safetensors"):
        IdealReferences.load(text)
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"expected a file of IDEAL references, got .*model.safetensors.* got None"):
        IdealReferences.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"expected a file of IDEAL references, got .*, which is no file"):
        IdealReferences.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        IdealReferences.load(tmp_path / "absent.safetensors")


def test_a_place_that_is_none_is_named(references, tmp_path):
    with pytest.raises(OSError, match=r"expected a place to write references to, got .*absent/part.safetensors"):
        references.save(tmp_path / "absent" / "part.safetensors")


def test_a_loaded_file_of_another_model_is_refused(references, tmp_path):
    references.save(tmp_path / "part.safetensors")
    loaded = IdealReferences.load(tmp_path / "part.safetensors")
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        tiny_model(seed=5)(random_images(1), references=loaded)


def test_moving_to_a_device_keeps_everything(references):
    moved = references.to("cpu")
    assert repr(moved) == repr(references)
    assert torch.equal(moved.deviation_vectors, references.deviation_vectors)
    meta = references.to("meta")
    assert meta.normal_features[0].device.type == meta.abnormal_deviations[0].device.type == "meta"
    assert meta.abnormal_sources[0].device.type == "meta"


def test_what_another_threshold_does_not_support_is_said_once():
    """A defect of one patch is found by the highest patch, but not by the mean of all."""
    normal = torch.full((30, 4, 4), 0.3) + torch.linspace(0, 0.02, 30)[:, None, None]
    abnormal = normal[:1].clone()
    abnormal[0, 1, 2] = 0.6
    scores = ReferenceScores(normal, abnormal, None, len(normal))
    calibration = scores.calibrate(0.01, 0.05)
    assert calibration.warning is None
    references = IdealReferences([torch.ones(1, 2)], calibration=calibration, top_fraction=0.01, scores=scores)
    with pytest.warns(UserWarning, match="1 of 1 scores of abnormal references are below the threshold"):
        references.calibrated_for(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        references.calibrated_for(1.0)
        references.calibrated_for(0.02)
