"""Stored measurements: used again while nothing that they depend on has changed, and never after."""

import shutil

import numpy as np
import pytest
from PIL import Image

from modeling_ideal import IdealModel
from modeling_ideal.evaluation.protocol import evaluation as protocol

from .test_protocol import evaluation

ONE_SEED = {"seeds": [0], "methods": ["normal_matching"]}


@pytest.fixture
def own_target(target, tmp_path):
    """A copy of the target, to be changed."""
    return shutil.copytree(target, tmp_path / "parts")


def figures(results, method="normal_matching", category="nut"):
    return results["methods"][method]["setups"]["N1A1"]["general"]["categories"][category]


def measurements_in(out):
    return {file.name for file in out.glob("measurements/*")}


def test_a_changed_mask_changes_the_figures(own_target, model_folder, tmp_path):
    first = evaluation(own_target, model_folder, tmp_path / "out", **ONE_SEED).run()
    for mask in (own_target / "nut" / "ground_truth").rglob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(mask))).save(mask)
    second = evaluation(own_target, model_folder, tmp_path / "out", **ONE_SEED).run()
    assert figures(second) == figures(evaluation(own_target, model_folder, tmp_path / "new", **ONE_SEED).run())
    assert figures(second)["pixel_auroc"] < figures(first)["pixel_auroc"] - 1
    assert figures(second)["image_auroc"] == figures(first)["image_auroc"]  # masks of queries do not change scores
    assert figures(second, category="bolt") == figures(first, category="bolt")


def test_a_changed_test_picture_changes_the_figures(own_target, model_folder, tmp_path):
    first = evaluation(own_target, model_folder, tmp_path / "out", **ONE_SEED).run()
    for picture in (own_target / "nut" / "test" / "good").glob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(picture)) // 2).save(picture)
    second = evaluation(own_target, model_folder, tmp_path / "out", **ONE_SEED).run()
    assert figures(second) == figures(evaluation(own_target, model_folder, tmp_path / "new", **ONE_SEED).run())
    assert abs(figures(second)["image_auroc"] - figures(first)["image_auroc"]) > 1
    assert figures(second, category="bolt") == figures(first, category="bolt")


def test_one_more_test_picture_changes_the_key(own_target, model_folder, tmp_path):
    out = tmp_path / "out"
    evaluation(own_target, model_folder, out, **ONE_SEED).run()
    stored = measurements_in(out)
    with Image.open(own_target / "nut" / "test" / "good" / "000.png") as picture:
        picture.rotate(90).save(own_target / "nut" / "test" / "good" / "999.png")
    evaluation(own_target, model_folder, out, **ONE_SEED).run()
    assert len(measurements_in(out) - stored) == 1  # nut, not bolt


def test_nothing_is_measured_again_while_nothing_changes(own_target, model_folder, tmp_path, monkeypatch):
    first = evaluation(own_target, model_folder, tmp_path, **ONE_SEED).run()
    monkeypatch.setattr(protocol, "measure", None)
    for picture in own_target.rglob("*.png"):  # files that are written anew, with the same pictures
        Image.open(picture).save(picture, compress_level=1)
    assert evaluation(own_target, model_folder, tmp_path, **ONE_SEED).run() == first


def test_a_setting_of_the_head_changes_the_key(target, model_folder, tmp_path):
    settings = {"top_fraction": 0.5, "patch_smoothing": 1.0, "share_normals": True, "alignment": "euclidean"}
    settings |= {"num_neighbors": 5, "erase_strength": 0.3}
    evaluation(target, model_folder, tmp_path, seeds=[0], methods=["ideal"]).run()
    for name, value in settings.items():
        stored = measurements_in(tmp_path)
        other = evaluation(target, model_folder, tmp_path, seeds=[0], methods=["ideal"])
        setattr(other.model.config, name, value)
        other.run()
        assert len(measurements_in(tmp_path) - stored) == 2, name  # two categories


def test_a_category_without_queries_is_refused_before_the_work(own_target, model_folder, tmp_path):
    for name in ("001", "002"):  # what is left is the reference
        (own_target / "bolt" / "test" / "scratch" / f"{name}.png").unlink()
        (own_target / "bolt" / "ground_truth" / "scratch" / f"{name}_mask.png").unlink()
    with pytest.raises(
        ValueError, match=r"category 'bolt', .* expected normal and anomalous queries, got 4 normal and 0"
    ):
        evaluation(own_target, model_folder, tmp_path / "out", **ONE_SEED).run()
    assert not (tmp_path / "out").exists()


def test_every_head_is_scored_with_its_own_settings(target, model_folder, tmp_path):
    """A model compared with another has the figures that it has alone."""
    other = IdealModel.from_pretrained(model_folder)
    other.config.top_fraction, other.config.patch_smoothing = 0.6, 1.5
    both = evaluation(
        target, model_folder, tmp_path / "both", seeds=[0], methods=["ideal", "wide"], others={"wide": other}
    ).run()
    alone = evaluation(target, model_folder, tmp_path / "alone", seeds=[0], methods=["ideal"])
    alone.model = other
    assert figures(both, "wide") == figures(alone.run(), "ideal")
    assert figures(both, "wide") != figures(both, "ideal")


def test_a_damaged_measurement_is_measured_again(target, model_folder, tmp_path):
    first = evaluation(target, model_folder, tmp_path, **ONE_SEED).run()
    for damage in ("", "{", "[]", '{"settings": {}}'):
        for file in tmp_path.glob("measurements/*.json"):
            file.write_text(damage)
        assert evaluation(target, model_folder, tmp_path, **ONE_SEED).run() == first
