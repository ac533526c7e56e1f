"""References files of other formats and with a damaged prior."""

import json

import pytest
from safetensors import safe_open

from modeling_ideal import IdealReferences

from .test_references_file import EXAMPLE, rewritten


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
