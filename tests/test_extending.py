"""Extending references: as if all pictures had been encoded together, without encoding the known ones again."""

import warnings
from dataclasses import replace

import pytest
import torch
from transformers import pipeline

from modeling_ideal import IdealImageProcessor, IdealReferences
from modeling_ideal.configuration_ideal import TRAINING_FREE

from .conftest import PATCH, random_images, tiny_model
from .pictures import photograph
from .test_references_file import EXAMPLE, rewritten

BOX = (4, 4, 20, 16)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def new_pipe(**changes):
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(**changes), image_processor=processor)


@pytest.fixture
def pipe():
    return new_pipe()


def good(*seeds):
    return {"normal": [photograph(seed) for seed in seeds]}


def bad(*seeds, types=None, masks=True):
    given = {"abnormal": [photograph(50 + seed) for seed in seeds]}
    if masks:
        given["masks"] = [(4 + seed, 4, 20, 16) for seed in seeds]
    return given | ({"types": types} if types else {})


def together(first, second):
    """The arguments that encode everything anew."""
    return {name: [*first.get(name, ()), *second.get(name, ())] for name in {**first, **second}}


def assert_equal(pipe, found, expected):
    """The same references to 1e-5: what they hold, what they say, and how they judge."""
    for name in ("num_normal", "num_abnormal", "mask_source", "types", "fingerprint", "processing", "top_fraction"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("normal_features", "abnormal_deviations", "abnormal_sources"):
        for one, other in zip(getattr(found, name), getattr(expected, name), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    if expected.deviation_vectors is None:
        assert found.deviation_vectors is None
    else:
        torch.testing.assert_close(found.deviation_vectors, expected.deviation_vectors, atol=1e-5, rtol=1e-5)
    assert (found.calibration is None) == (expected.calibration is None)
    if expected.calibration is not None:
        for one, other in ((found, expected), (found.calibrated_for(0.5), expected.calibrated_for(0.5))):
            one, other = (getattr(part, "calibration", part) for part in (one, other))
            assert one.threshold == pytest.approx(other.threshold, abs=1e-5)
            assert one.normal_scores == pytest.approx(other.normal_scores, abs=1e-5)
            assert one.abnormal_scores == pytest.approx(other.abnormal_scores, abs=1e-5)
            assert (one.false_alarm, one.supported_false_alarm) == (other.false_alarm, other.supported_false_alarm)
    assert found.warnings == expected.warnings
    one, other = (pipe(photograph(80), references=each) for each in (found, expected))
    assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    assert abs(one["anomaly_map"] - other["anomaly_map"]).max() < 1e-5


CASES = {
    "a missed defect": (good(1, 2, 3) | bad(1), bad(2)),
    "a false alarm": (good(1, 2, 3) | bad(1, 2), good(4)),
    "a second picture of each kind": (good(1) | bad(1), good(2) | bad(2)),
    "a defect beside a single good part": (good(1) | bad(1), bad(2)),
    "the first defect": (good(1, 2), bad(1)),
    "the first good parts": (bad(1), good(1, 2)),
    "unmarked defects": (good(1, 2) | bad(1, masks=False), bad(2, masks=False)),
    "a calibration for the first time": (bad(1, masks=False), good(1)),
    "types": (good(1, 2) | bad(1, types=["dent"]), bad(2, 3, types=["scratch", "dent"])),
    "a rate of its own": (good(1, 2) | {"false_alarm": 0.2}, good(3)),
    "without calibration": (good(1, 2) | bad(1) | {"false_alarm": 0}, good(3)),
    "the only good part again": (good(1), good(1)),
    "a known defect": (good(1, 2) | bad(1, 2), bad(2)),
}


@pytest.mark.parametrize("case", CASES)
def test_extended_is_as_encoded_anew(pipe, case, tmp_path, monkeypatch):
    known, new = CASES[case]
    rate = {name: known[name] for name in known if name == "false_alarm"}
    known = {name: value for name, value in known.items() if name != "false_alarm"}
    anew = pipe.encode_references(**together(known, new), **rate)
    pipe.encode_references(**known, **rate).save(tmp_path / "part.safetensors")
    pipe.set_references(tmp_path / "part.safetensors")

    seen, extract = [], pipe.model.extract_features
    monkeypatch.setattr(pipe.model, "extract_features", lambda *given: seen.append(len(given[0])) or extract(*given))
    extended = pipe.extend_references(**new)
    first = [kind for kind in ("normal", "abnormal") if len(new.get(kind, ())) == 1 and kind not in known]
    assert sum(seen) == len(new.get("normal", ())) + len(new.get("abnormal", ())) + 6 * len(first)
    monkeypatch.undo()

    assert_equal(pipe, extended, anew)
    assert pipe._references(None) is extended
    extended.save(tmp_path / "longer.safetensors")
    assert_equal(pipe, IdealReferences.load(tmp_path / "longer.safetensors"), anew)


@pytest.mark.parametrize("changes", [TRAINING_FREE, {"num_rotations": 3}], ids=["free", "poses"])
def test_whatever_the_head(changes, tmp_path):
    pipe = new_pipe(**changes)
    known, new = good(1, 2) | bad(1), good(3) | bad(2)
    pipe.encode_references(**known).save(tmp_path / "part.safetensors")
    extended = IdealReferences.load(tmp_path / "part.safetensors").extend(pipe, **new)
    assert_equal(pipe, extended, pipe.encode_references(**together(known, new)))


def test_one_picture_after_another(pipe):
    pipe.set_references(**good(1))
    for new in (bad(1), good(2)):
        pipe.extend_references(**new)
    extended = pipe.extend_references(**bad(2), false_alarm=0.1)
    assert extended.calibration.false_alarm == 0.1
    assert_equal(pipe, extended, pipe.encode_references(**good(1, 2), **bad(1, 2), false_alarm=0.1))


def test_a_known_picture_does_not_count_twice(pipe):
    known = pipe.set_references(**good(1, 2, 3))
    again = pipe.extend_references(**good(2))
    assert again.num_normal == 4
    assert again.calibration.supported_false_alarm == known.calibration.supported_false_alarm == pytest.approx(1 / 4)
    assert len(again.calibration.normal_scores) == 3
    assert again.calibration.threshold == pytest.approx(known.calibration.threshold, abs=1e-5)


def test_references_given_to_the_method_leave_those_of_the_pipeline(pipe):
    own = pipe.set_references(**good(1, 2))
    other = pipe.encode_references(**good(5))
    longer = other.extend(pipe, **good(6))
    assert (other.num_normal, longer.num_normal, pipe._references(None).num_normal) == (1, 2, 2)
    assert pipe(photograph(9))["score"] == pipe(photograph(9), references=own)["score"]


def test_the_file_is_no_larger_than_it_must_be(pipe, tmp_path):
    references = pipe.encode_references(**good(1, 2, 3))
    references.save(tmp_path / "with.safetensors")
    replace(references, pictures=None).save(tmp_path / "without.safetensors")
    with_pictures, without = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("with", "without"))
    features = 4 * references.normal_features[0].numel()
    assert with_pictures - without < features / 4  # the normal patches are there once


def test_warnings_are_about_the_new_references_alone(pipe):
    pipe.set_references(**good(1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        extended = pipe.extend_references(**good(2))
    assert [str(each.message) for each in caught] == extended.warnings
    assert all(each.filename == __file__ for each in caught)


REFUSED = {
    "nothing": (good(1), {}, "expected normal or abnormal images to add, got neither"),
    "a mask too many": (
        good(1),
        bad(1) | {"masks": [BOX] * 3, "abnormal": [photograph(2)] * 2},
        "masks: expected one for each of 2",
    ),
    "a mask without a picture": (
        good(1),
        good(2) | {"masks": [BOX]},
        "masks: expected abnormal images with them, got none",
    ),
    "a mask too few": (
        good(1) | bad(1),
        bad(2, masks=False),
        "masks: expected one for each new abnormal picture, because the defects of the references are marked",
    ),
    "a mask at last": (
        good(1) | bad(1, masks=False),
        bad(2),
        "masks: expected none, because the defects of the references are not marked, got masks",
    ),
    "no type": (good(1) | bad(1, types=["dent"]), bad(2), "types: expected the type of each new abnormal image, as"),
    "a type": (good(1) | bad(1), bad(2, types=["dent"]), "types: expected none, as with the references, got"),
    "types of another number": (good(1), bad(1, types=["a", "b"]), "types: expected one for each of 1 abnormal"),
    "an argument of another call": (
        good(1),
        good(2) | {"tiling": True},
        "among .* got unknown 'tiling'",
    ),
    "no picture": (good(1), {"normal": ["no.png"]}, "no.png"),
    "a rate that is none": (good(1), good(2) | {"false_alarm": 0.7}, "false_alarm: expected a number >= 0, below 0.5"),
    "a late calibration": (
        good(1) | {"false_alarm": 0},
        bad(1) | {"false_alarm": 0.1},
        "expected ones that were encoded with a calibration, .* got ones without; encode them again",
    ),
    "tiles": (good(1) | {"tiling": True}, good(2), "to extend them, got some in tiles, which do not; encode all"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_be_encoded_together_is_refused(pipe, case):
    known, new, message = REFUSED[case]
    before = pipe.set_references(**known)
    with pytest.raises(ValueError, match=message):
        pipe.extend_references(**new)
    assert pipe._references(None) is before


def test_a_picture_of_another_shape_is_refused():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH, keep_aspect_ratio=True)
    pipe = pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)
    pipe.set_references(**good(1))
    with pytest.raises(ValueError, match=r"normal: expected pictures that become \(7, 9\) patches .* got \(9, 7\)"):
        pipe.extend_references(normal=[photograph(2, (40, 30))])


def test_references_of_another_model_or_without_features_are_refused(pipe, tmp_path):
    new_pipe(seed=1).encode_references(**good(1)).save(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        pipe.extend_references(tmp_path / "other.safetensors", **good(2))
    references = pipe.model.encode_references(random_images(2))
    with pytest.raises(ValueError, match="got some of an earlier release or made from tensors, which do not; encode"):
        references.extend(pipe, **good(2))
    with pytest.raises(ValueError, match="expected references, got none"):
        pipe.extend_references(**good(2))
    assert IdealReferences.load(EXAMPLE).pictures is None


HASHES = {"hashes": {"normal": ["a", "b"], "abnormal": ["c"]}, "false_alarm": None}
PICTURES = HASHES | {"patches": {"normal": [4, 4], "abnormal": [4, 4]}}
ABNORMAL = {"pictures.abnormal.features": torch.zeros(1, 4, 4, 16)}
DAMAGED = {
    "a list": ({"pictures": []}, {}, "expected pictures to be pictures or null"),
    "a hash as a number": (
        {"pictures": PICTURES | {"hashes": {"normal": [1]}}},
        {},
        "expected pictures to be pictures",
    ),
    "a negative rate": ({"pictures": PICTURES | {"false_alarm": -1}}, {}, "expected pictures to be pictures"),
    "no sizes": ({"pictures": HASHES}, {}, "expected pictures to be pictures or null"),
    "an empty size": (
        {"pictures": PICTURES | {"patches": {"normal": [0, 4], "abnormal": [4, 4]}}},
        {},
        "to be pictures",
    ),
    "features alone": ({}, ABNORMAL, "expected pictures in the header for the tensors"),
    "a picture too few": (
        {"pictures": PICTURES | {"hashes": {"normal": ["a"], "abnormal": ["c"]}}},
        ABNORMAL,
        "pictures: expected 2 normal ones of one set, got 1",
    ),
    "no features": ({"pictures": PICTURES}, {}, r"pictures.abnormal.features: expected \(1, 4, 4, 16\), got none"),
    "features beyond the bank": (
        {"pictures": PICTURES | {"patches": {"normal": [400, 400], "abnormal": [4, 4]}}},
        ABNORMAL,
        r"pictures.normal.features: expected \(2, 400, 400, 16\), got none",
    ),
    "other channels": (
        {"pictures": PICTURES},
        {"pictures.abnormal.features": torch.zeros(1, 4, 4, 8)},
        r"pictures.abnormal.features: expected \(1, 4, 4, 16\), got \(1, 4, 4, 8\)",
    ),
    "no copies": (
        {"pictures": PICTURES},
        ABNORMAL | {"pictures.abnormal.copies": torch.zeros(0, 4, 4, 16)},
        "pictures.abnormal",
    ),
    "marks of another size": (
        {"pictures": PICTURES},
        ABNORMAL | {"pictures.abnormal.marked": torch.zeros(1, 4, 5, dtype=torch.bool)},
        r"pictures.abnormal.marked: expected \(1, 4, 4\), got \(1, 4, 5\)",
    ),
    "marks as numbers": (
        {"pictures": PICTURES},
        ABNORMAL | {"pictures.abnormal.marked": torch.zeros(1, 4, 4)},
        "pictures.abnormal.marked: expected the type BOOL, got F32",
    ),
    "NaN": (
        {"pictures": PICTURES},
        {"pictures.abnormal.features": torch.full((1, 4, 4, 16), torch.nan)},
        "256 that are",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_pictures_are_refused(case, tmp_path):
    changes, tensors, message = DAMAGED[case]
    with pytest.raises(ValueError, match=f"bad.safetensors.*{message}"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", tensors, **changes))
