"""References files of other formats and with a damaged prior."""

import json

import pytest
from safetensors import safe_open

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.fingerprint import format_1_fingerprint

from .conftest import PATCH
from .pictures import photograph
from .test_references_file import EXAMPLE, SIDE, example_model, rewritten


@pytest.mark.parametrize(
    ("form", "hint"),
    [
        ("ideal-references-3", "a newer release made it: update modeling-ideal, or encode the references again"),
        ("pt", "the file holds no references, but perhaps the weights of a model"),
        ("other", "got 'other'$"),
    ],
)
def test_files_of_another_format_are_refused_with_what_to_do(tmp_path, form, hint):
    with pytest.raises(ValueError, match=hint):
        IdealReferences.load(rewritten(tmp_path / "other.safetensors", form=form))


@pytest.mark.parametrize("damage", ["name", "list"])
def test_a_damaged_prior_is_refused_and_a_longer_one_is_read(tmp_path, damage):
    with safe_open(EXAMPLE, framework="pt") as file:
        calibration = json.loads(file.metadata()["header"])["calibration"]
    prior = {"spread": 0.1, "degrees": 3.0, "decrease": 0.2, "copy_shift": 0.3, "copy_spread": 0.4}
    longer = {**calibration, "prior": {**prior, "colour": "red"}}
    read = IdealReferences.load(rewritten(tmp_path / "a.safetensors", calibration=longer))
    assert read.calibration.prior.decrease == 0.2
    bad = [1] if damage == "list" else {name.replace("decrease", "decreasm"): value for name, value in prior.items()}
    with pytest.raises(ValueError, match="prior: expected spread, degrees, decrease, copy_shift, copy_spread, got"):
        IdealReferences.load(rewritten(tmp_path / "b.safetensors", calibration={**calibration, "prior": bad}))


def test_a_threshold_of_the_first_format_is_for_the_models_own_top_fraction(tmp_path):
    model = example_model()
    with safe_open(EXAMPLE, framework="pt") as file:
        calibration = json.loads(file.metadata()["header"])["calibration"]
    del calibration["top_fraction"]
    absent = dict.fromkeys(("scores.normal", "scores.abnormal", "scores.marked"))
    changes = {
        "fingerprint": format_1_fingerprint(model.config, model),
        "calibration": calibration,
        "processing": None,
    }
    old = rewritten(tmp_path / "old.safetensors", absent, "ideal-references-1", scored_pictures=0, **changes)
    processor = IdealImageProcessor(size=SIDE, patch_size=PATCH)
    pipe = AnomalyDetectionPipeline(model=model, image_processor=processor)
    picture = photograph(1, (SIDE, SIDE))
    with pytest.warns(UserWarning, match="earlier release"):
        pipe.set_references(old)
    assert pipe(picture)["threshold"] == pipe(picture, top_fraction=model.config.top_fraction)["threshold"]
    with pytest.raises(
        ValueError, match=r"to find the threshold for top_fraction=0.5, got a threshold for .*=0.1 alone"
    ):
        pipe(picture, top_fraction=0.5)
    assert pipe(picture, top_fraction=0.5, threshold=0.3)["threshold"] == 0.3
