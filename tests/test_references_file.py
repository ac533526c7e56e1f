"""References files: those of other releases load; damaged or hostile ones are refused before they cost anything."""

import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from modeling_ideal import IdealImageProcessor, IdealModel, IdealReferences, encode_calibrated
from modeling_ideal.fingerprint import format_1_fingerprint
from modeling_ideal.references import processing_of

from .conftest import PATCH, random_images, random_masks, tiny_config

EXAMPLE = Path(__file__).parent / "example-references.safetensors"
SIDE = 4 * PATCH


def formula(shape, step):
    """Values that every processor computes to the same bit: 255 multiples of 1/256 between -0.5 and 0.5."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * step) % 255 - 127).view(shape).float() / 256


def example_model():
    """A model whose weights depend on their sizes and layers alone, not on the names that transformers gives them."""
    model = IdealModel(tiny_config())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            layers = sum(int(part) + 1 for part in name.split(".") if part.isdigit())
            parameter.copy_(formula(parameter.shape, 37 + 2 * layers))
    return model


def example_references(model):
    """What the example file was made from, with `references.save(EXAMPLE)`."""
    masks = torch.zeros(1, SIDE, SIDE)
    masks[0, :PATCH, : 2 * PATCH] = 1
    abnormal = formula((1, 3, SIDE, SIDE), 41) + 2 * masks[:, None]
    references = encode_calibrated(model, formula((2, 3, SIDE, SIDE), 101), abnormal, masks, false_alarm=0.2)
    return replace(
        references, types=["dent"], processing=processing_of(IdealImageProcessor(size=SIDE, patch_size=PATCH))
    )


def test_a_file_of_november_2026_loads_and_scores():
    """If this fails, users' files fail: read the file as it is, or find another way to let them keep working."""
    assert EXAMPLE.stat().st_size < 10_000
    model, references = example_model(), IdealReferences.load(EXAMPLE)
    query = formula((2, 3, SIDE, SIDE), 77)
    scores = model(query, references=references).scores
    torch.testing.assert_close(scores, torch.tensor([0.3466, 0.3468]), atol=2e-3, rtol=0)
    fresh = example_references(model)
    assert references.fingerprint == fresh.fingerprint
    torch.testing.assert_close(model(query, references=fresh).scores, scores, atol=1e-3, rtol=0)
    assert (references.types, references.top_fraction, references.processing) == (["dent"], 0.1, fresh.processing)
    assert references.calibration.false_alarm == 0.2
    for fraction in (0.1, 0.5):
        found, expected = references.calibrated_for(fraction), fresh.calibrated_for(fraction)
        assert found.normal_scores == pytest.approx(expected.normal_scores, abs=1e-3)
        assert found.threshold == pytest.approx(expected.threshold, abs=0.01)


def rewritten(path, tensors=None, form=None, **changes):
    """Change tensors, format and fields of the header of the example; None removes one."""
    with safe_open(EXAMPLE, framework="pt") as file:
        header = json.loads(file.metadata()["header"]) | changes
        content = {name: file.get_tensor(name) for name in file.keys()} | (tensors or {})  # noqa: SIM118
        form = form or file.metadata()["format"]
    content = {name: value for name, value in content.items() if value is not None}
    header = {name: value for name, value in header.items() if value != "nothing"}
    save_file(content, path, metadata={"format": form, "header": json.dumps(header)})
    return path


def test_a_file_of_the_first_format_still_loads(tmp_path):
    model = example_model()
    with safe_open(EXAMPLE, framework="pt") as file:
        calibration = json.loads(file.metadata()["header"])["calibration"]
    del calibration["top_fraction"]
    path = rewritten(
        tmp_path / "old.safetensors",
        {"scores.normal": None, "scores.abnormal": None, "scores.marked": None},
        "ideal-references-1",
        fingerprint=format_1_fingerprint(model.config, model),
        calibration=calibration,
        processing="nothing",
        scored_pictures="nothing",
    )
    old, now = IdealReferences.load(path), IdealReferences.load(EXAMPLE)
    query = formula((2, 3, SIDE, SIDE), 77)
    assert torch.equal(model(query, references=old).scores, model(query, references=now).scores)
    assert old.calibrated_for(0.1).threshold == pytest.approx(now.calibration.threshold)
    assert "earlier release" in " ".join(old.warnings)
    assert "earlier release" not in " ".join(now.warnings)
    old.save(tmp_path / "again.safetensors")
    assert torch.equal(
        model(query, references=IdealReferences.load(tmp_path / "again.safetensors")).scores,
        model(query, references=now).scores,
    )
    with torch.no_grad():
        model.deviation_encoder.vectors.weight.add_(1)
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        model(query, references=old)


def test_fields_that_a_newer_release_adds_are_left_out(tmp_path):
    with safe_open(EXAMPLE, framework="pt") as file:
        calibration = json.loads(file.metadata()["header"])["calibration"]
    path = rewritten(tmp_path / "new.safetensors", colour="red", calibration={**calibration, "rule": "better"})
    assert IdealReferences.load(path).calibration == IdealReferences.load(EXAMPLE).calibration


BAD_HEADERS = {
    "no sets": ({"num_sets": 0}, "expected num_sets to be an integer >= 1, got 0"),
    "a million sets": ({"num_sets": 10**6}, "expected tensors for 1000000 sets, got"),
    "sets beyond counting": ({"num_sets": 10**400}, "expected tensors for 1000"),
    "no number of sets": ({"num_sets": "nothing"}, "expected num_sets to be an integer >= 1, got 'nothing'"),
    "a negative count": ({"num_normal": -1}, "expected num_normal to be an integer >= 0, got -1"),
    "half an image": ({"num_abnormal": 0.5}, "expected num_abnormal to be an integer >= 0, got 0.5"),
    "truth as a count": ({"num_normal": True}, "expected num_normal to be an integer >= 0, got True"),
    "another source": ({"mask_source": "guessed"}, "expected mask_source to be one of .*, got 'guessed'"),
    "a list as source": ({"mask_source": []}, r"expected mask_source to be one of .*, got \[\]"),
    "types as text": ({"types": "dent"}, "expected types to be a list of names, got 'dent'"),
    "too many types": ({"types": ["dent", "dent"]}, "types: expected 1, one for each abnormal reference"),
    "a numeric fingerprint": ({"fingerprint": 5}, "expected fingerprint to be a text, got 5"),
    "one tile side": ({"tile_size": [14]}, r"expected tile_size to be two integers in 1..4096 or null, got \[14\]"),
    "tiles of nothing": ({"tile_size": [0, 14]}, "expected tile_size to be two integers"),
    "tiles of any memory": ({"tile_size": [14, 14 * 10**5]}, r"expected tile_size to be .*, got \[14, 1400000\]"),
    "smoothing of any memory": ({"scored_smoothing": 1e9}, "expected scored_smoothing to be .*, got 1000000000"),
    "no scores": ({"calibration": {}}, "expected calibration to be a calibration or null, got {}"),
    "settings as a list": ({"processing": [1]}, r"expected processing to be settings or null, got \[1\]"),
    "scores of no picture": ({"scored_pictures": 0}, r"expected scores \(n, h, w\) of at least one picture"),
    "fewer abnormal ones": ({"num_abnormal": 0, "types": []}, "expected the tensors .'normal_features.0'., got"),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_headers_are_refused(case, tmp_path):
    changes, message = BAD_HEADERS[case]
    with pytest.raises(ValueError, match=f"expected a file of IDEAL references, got .*bad.safetensors.*{message}"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"normal_scores": []},
        {"normal_scores": [float("nan")]},
        {"normal_scores": ["0.1"]},
        {"normal_scores": [-0.1]},
        {"abnormal_scores": None},
        {"false_alarm": 0.7},
        {"false_alarm": -1},
        {"supported_false_alarm": 0},
        {"top_fraction": 0},
        {"top_fraction": float("inf")},
    ],
    ids=str,
)
def test_bad_calibrations_are_refused(changes, tmp_path):
    with safe_open(EXAMPLE, framework="pt") as file:
        calibration = json.loads(file.metadata()["header"])["calibration"]
    with pytest.raises(ValueError, match="expected calibration to be a calibration or null"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", calibration={**calibration, **changes}))


BAD_TENSORS = {
    "one missing": ({"abnormal_sources.0": None}, "expected the tensors"),
    "one too many": ({"more": torch.zeros(2)}, "expected the tensors"),
    "a vector of patches": ({"normal_features.0": torch.zeros(16)}, r"normal_features.0: expected patches \(Q, C\)"),
    "no patches": ({"normal_features.0": torch.zeros(0, 16)}, r"normal_features.0: expected patches .* got \(0, 16\)"),
    "other channels": ({"normal_features.0": torch.zeros(4, 8)}, r"abnormal_deviations.0: expected \(A, 8\)"),
    "other sources": ({"abnormal_sources.0": torch.zeros(1, dtype=torch.int64)}, r"with sources \(A,\), got .*\(1,\)"),
    "vectors of two sets": ({"deviation_vectors": torch.zeros(2, 5, 16)}, r"expected \(1, M, 16\), got \(2, 5, 16\)"),
    "half precision": ({"deviation_vectors": torch.zeros(1, 5, 16).half()}, "expected the type F32, got F16"),
    "numbers as marks": ({"scores.marked": torch.zeros(6, 4, 4)}, "scores.marked: expected the type BOOL, got F32"),
    "other marks": ({"scores.marked": torch.zeros(6, 4, 5).bool()}, r"scores.marked: expected \(6, 4, 4\)"),
    "flat scores": ({"scores.normal": torch.zeros(2, 16)}, r"expected scores \(n, h, w\)"),
    "empty maps": ({"scores.normal": torch.zeros(2, 0, 4)}, "scores.normal: expected maps of at least one patch"),
    "NaN": ({"deviation_vectors": torch.full((1, 5, 16), torch.nan)}, "80 that are NaN or infinite"),
    "an infinite score": ({"scores.normal": torch.full((2, 4, 4), torch.inf)}, "32 that are NaN or infinite"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_bad_tensors_are_refused(case, tmp_path):
    tensors, message = BAD_TENSORS[case]
    with pytest.raises(ValueError, match=f"bad.safetensors.*{message}"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", tensors))


@pytest.mark.parametrize("value", [-1, 1])
def test_sources_out_of_range_are_refused(value, tmp_path):
    count = len(IdealReferences.load(EXAMPLE).abnormal_sources[0])
    sources = torch.full((count,), value, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"abnormal_sources.0: expected numbers in 0..0, got {value} to {value}"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", {"abnormal_sources.0": sources}))


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("ideal-references-2", "{", "header: expected JSON, got JSONDecodeError"),
        ("ideal-references-2", "[]", "header: expected a JSON object, got list"),
        ("ideal-references-2", "[" * 100_000, "header: expected JSON, got RecursionError"),
        ("ideal-references-2", None, "header: expected JSON"),
        (
            "ideal-references-3",
            "{}",
            "expected the format ideal-references-1 or ideal-references-2, got 'ideal-ref.*3'",
        ),
    ],
    ids=["cut", "list", "deep", "none", "newer"],
)
def test_unreadable_headers_are_refused(form, text, message, tmp_path):
    metadata = {"format": form} | ({} if text is None else {"header": text})
    save_file({"normal_features.0": torch.zeros(4, 16)}, tmp_path / "bad.safetensors", metadata=metadata)
    with pytest.raises(ValueError, match=message):
        IdealReferences.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("shape", [[10**9, 10**9], [2**40, 16], [-4, 16]], ids=str)
def test_shapes_beyond_the_file_are_refused(shape, tmp_path):
    """A file of a hundred bytes that announces terabytes."""
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, 256]}
    header = json.dumps({"__metadata__": {"format": "ideal-references-2"}, "normal_features.0": tensor}).encode()
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(256))
    with pytest.raises(ValueError, match=r"expected a safetensors file of IDEAL references, got .*bad.safetensors"):
        IdealReferences.load(path)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    content = EXAMPLE.read_bytes()
    for length in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.safetensors").write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=r"expected a safetensors file of IDEAL references, got .*cut.safetensors"
        ):
            IdealReferences.load(tmp_path / "cut.safetensors")


def test_what_was_loaded_does_not_change_with_the_file(tmp_path):
    path = tmp_path / "part.safetensors"
    path.write_bytes(EXAMPLE.read_bytes())
    references = IdealReferences.load(path)
    before = references.normal_features[0].clone()
    path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(references.normal_features[0], before)


def test_references_of_another_processor_are_refused():
    references = IdealReferences.load(EXAMPLE)
    references.check_processing(IdealImageProcessor(size=SIDE, patch_size=PATCH))
    with pytest.raises(ValueError, match=r"a processor with size \[16, 16\], .* got \[32, 32\]; encode"):
        references.check_processing(IdealImageProcessor(size=2 * SIDE, patch_size=PATCH))
    other = IdealImageProcessor(size=SIDE, patch_size=PATCH, image_mean=[0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match=r"a processor with image_mean \[0.485, .* got \[0.5, 0.5, 0.5\]"):
        references.check_processing(other)
    replace(references, processing=None).check_processing(other)  # encoded from tensors


def test_what_to_warn_of_goes_with_the_file(tmp_path):
    model = example_model()
    references = {
        "": encode_calibrated(model, random_images(4), false_alarm=0.2),
        "not marked: the patches that deviate most": encode_calibrated(
            model, random_images(2), random_images(1, seed=1)
        ),
        "abnormal references alone, without masks, give no threshold: .* default threshold of 0.5": (
            model.encode_references(None, random_images(1))
        ),
        "the references are not calibrated: .* default threshold of 0.5": model.encode_references(random_images(1)),
        "there is no normal reference: what surrounds the marked defects stands for it": (
            encode_calibrated(model, None, random_images(2), random_masks(2))
        ),
        "of an earlier release": replace(
            encode_calibrated(model, None, random_images(1), random_masks(1)), file_format="ideal-references-1"
        ),
    }
    for text, each in references.items():
        each.save(tmp_path / "part.safetensors")
        warnings = IdealReferences.load(tmp_path / "part.safetensors").warnings
        assert warnings == each.warnings
        assert re.search(text, "; ".join(warnings))
