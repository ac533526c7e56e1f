"""A limited bank of normal patches: which are kept, and that a picture that is left out has no say in it."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.normal_bank import NormalBank
from modeling_ideal.normal_variation_eraser import unit
from modeling_ideal.reference_pictures import PictureGroup, ReferencePictures
from modeling_ideal.representative_patches import representative_patches

from .conftest import PATCH, tiny_model
from .pictures import photograph
from .test_extending import assert_equal
from .test_references_file import rewritten

SIDE = 8  # patches of a picture along each side
MANY = [photograph(index) for index in range(10)]
BAD = {"abnormal": [photograph(30), photograph(31)], "masks": [(2, 3, 20, 15), (4, 4, 12, 12)]}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def new_pipe(**changes):
    processor = IdealImageProcessor(size=SIDE * PATCH, patch_size=PATCH)
    return AnomalyDetectionPipeline(model=tiny_model(**changes), image_processor=processor)


@pytest.fixture
def pipe():
    return new_pipe()


def random_pictures(normal=11, abnormal=2, channels=5, max_patches=None):
    """Features of pictures of 3 x 4 patches, with other poses, and marks on the abnormal ones."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, channels, generator=generator)  # noqa: E731
    hashes = [hashlib.sha256(bytes([place])).hexdigest() for place in range(normal + abnormal)]
    marked = torch.zeros(abnormal, 3, 4, dtype=torch.bool)
    marked[:, 0, 0] = True
    return ReferencePictures(
        PictureGroup(draw(normal, 3, 4), hashes[:normal], turned=draw(normal, 12)),
        PictureGroup(draw(abnormal, 3, 4), hashes[normal:], marked=marked),
        0.05,
        max_patches,
    )


def shared(pictures):
    """The patches of each abnormal picture that are no neighbours of the marked corner."""
    far = torch.ones(3, 4, dtype=torch.bool)
    far[:2, :2] = False
    return [picture[far] for picture in pictures.abnormal.features]


def plain_bank(pictures, kind=None, places=()):
    """The bank without some pictures, written down plainly."""
    own = {("normal", place): list(part) for place, part in enumerate(pictures.normal.features.flatten(1, 2))}
    turned = {("normal", place): list(part) for place, part in enumerate(pictures.normal.turned)}
    others = {("abnormal", place): list(part) for place, part in enumerate(shared(pictures))}
    gone = {(kind, place) for place in places}
    if pictures.max_patches is None:
        parts = [*own.items(), *turned.items(), *others.items()]
        return torch.stack([patch for owner, part in parts if owner not in gone for patch in part])
    hashes = dict(zip(own, pictures.normal.hashes, strict=True)) | dict(
        zip(others, pictures.abnormal.hashes, strict=True)
    )
    owners, each = sorted(hashes, key=hashes.get), pictures.max_patches // len(hashes)
    chosen = []
    for start in range(0, len(owners), 8):
        group = [owner for owner in owners[start : start + 8] if owner not in gone]
        pool = [patch for owner in group for part in (own, turned, others) for patch in part.get(owner, [])]
        if pool:
            pool = torch.stack(pool)
            chosen.append(pool[representative_patches(pool, each * len(group))])
    return torch.cat(chosen)


@pytest.mark.parametrize("most", [None, 13, 60, 150, 10_000])
def test_the_bank_without_pictures_is_that_of_a_plain_loop(most):
    pictures = random_pictures(max_patches=most)
    bank = NormalBank(pictures, share_normals=True)
    cases = [("normal", [4]), ("normal", [5]), ("normal", []), ("abnormal", [1]), ("normal", [0, 7, 10])]
    for kind, places in [*cases, *cases[::-1], ("abnormal", [0, 1]), ("normal", [1])]:
        features, directions = bank.without(kind, places)
        assert torch.equal(features, plain_bank(pictures, kind, places))
        assert torch.equal(directions, unit(features))
        assert most is None or len(features) <= most


@pytest.mark.parametrize("most", [60, 100])
def test_a_picture_that_is_left_out_has_no_say(most):
    pictures = random_pictures(max_patches=most)
    expected = NormalBank(pictures, share_normals=True).without("normal", [3])[0].clone()
    pictures.normal.features[3] *= 100
    pictures.normal.turned[3] -= 100
    assert torch.equal(NormalBank(pictures, share_normals=True).without("normal", [3])[0], expected)
    whole = NormalBank(pictures, share_normals=True).without()[0]
    assert (whole.abs() > 50).any()
    assert len(whole) == len(expected) + most // 13


@pytest.mark.parametrize("given", [{}, BAD], ids=["normal", "abnormal"])
@pytest.mark.parametrize("changes", [{}, {"num_rotations": 3, "share_normals": True}], ids=["plain", "poses"])
def test_scores_as_new_are_those_with_the_limited_bank(given, changes):
    pipe = new_pipe(**changes)
    references = pipe.encode_references(normal=MANY, **given, max_patches=120)
    assert len(references.normal_features[0]) <= 120
    assert references.num_normal == 10
    bank = NormalBank(references.pictures, pipe.model.config.share_normals)
    for place, score in enumerate(references.calibration.normal_scores):
        features, _ = bank.without("normal", [place])
        own = references.pictures.normal.features[place].flatten(0, 1)
        assert not (features[:, None] == own).all(2).any()
        if not given:
            alone = IdealReferences([features], fingerprint=references.fingerprint)
            assert pipe(MANY[place], references=alone, threshold=0.5)["score"] == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("changes", [{}, {"num_rotations": 3, "share_normals": True}], ids=["plain", "poses"])
def test_the_order_of_references_does_not_matter(changes):
    pipe = new_pipe(**changes)
    one = pipe.encode_references(normal=MANY, **BAD, max_patches=100)
    other = pipe.encode_references(
        normal=MANY[::-1], abnormal=BAD["abnormal"][::-1], masks=BAD["masks"][::-1], max_patches=100
    )
    assert torch.equal(one.normal_features[0], other.normal_features[0])
    assert other.calibration.normal_scores[::-1] == pytest.approx(one.calibration.normal_scores, abs=1e-6)
    assert other.calibration.threshold == pytest.approx(one.calibration.threshold, abs=1e-6)
    scores = [pipe(photograph(40), references=each)["score"] for each in (one, other)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_a_limit_that_all_patches_keep_changes_nothing(pipe):
    for given in ({}, BAD):
        everything = pipe.encode_references(normal=MANY[:4], **given)
        limited = pipe.encode_references(normal=MANY[:4], **given, max_patches=10_000)
        assert limited.calibration.threshold == pytest.approx(everything.calibration.threshold, abs=1e-6)
        assert len(limited.normal_features[0]) == len(everything.normal_features[0])


def test_a_limited_set_is_saved_loaded_and_extended(pipe, tmp_path):
    anew = pipe.encode_references(normal=MANY, **BAD, max_patches=100)
    first = pipe.encode_references(
        normal=MANY[:7], abnormal=BAD["abnormal"][:1], masks=BAD["masks"][:1], max_patches=100
    )
    first.save(tmp_path / "part.safetensors")
    loaded = IdealReferences.load(tmp_path / "part.safetensors")
    assert_equal(pipe, loaded, first)
    assert loaded.pictures.max_patches == 100
    extended = loaded.extend(pipe, normal=MANY[7:], abnormal=BAD["abnormal"][1:], masks=BAD["masks"][1:])
    assert_equal(pipe, extended, anew)
    assert len(extended.normal_features[0]) == 100
    uncalibrated = pipe.encode_references(normal=MANY, false_alarm=0, max_patches=50)
    assert (uncalibrated.calibration, len(uncalibrated.normal_features[0])) == (None, 50)


def test_a_single_picture_may_be_limited(pipe):
    references = pipe.encode_references(normal=MANY[:1], max_patches=20)
    assert len(references.normal_features[0]) == 20
    assert len(references.calibration.normal_scores) == 6
    result = pipe(MANY[1], references=references, return_explanation=True)
    assert result["explanation"]["normal"][0]["reference"] == 0


def test_tiles_take_the_limit_too(pipe):
    references = pipe.encode_references(normal=[photograph(1, (60, 90))], tiling=True, max_patches=30)
    assert len(references.normal_features[0]) == 30


@pytest.mark.parametrize("most", [0, -1, 2.5, "many", True])
def test_a_limit_that_is_none_is_refused(pipe, most):
    with pytest.raises(ValueError, match=f"^max_patches: expected an integer >= 1, got {most!r}"):
        pipe.set_references(normal=MANY[:2], max_patches=most)


def test_a_limit_that_cannot_be_kept_is_refused(pipe):
    with pytest.raises(ValueError, match=r"^max_patches: expected at least one for each of 3 references .*, got 2"):
        pipe.set_references(normal=MANY[:3], max_patches=2)
    with pytest.raises(ValueError, match=r"^max_patches: expected normal images with it, got none"):
        pipe.set_references(**BAD, max_patches=20)
    pipe.set_references(normal=MANY[:3], max_patches=3)
    with pytest.raises(ValueError, match=r"at least one for each of 4 references with normal patches, got 3"):
        pipe.extend_references(normal=MANY[3:4])
    with pytest.raises(ValueError, match="got unknown 'max_patches'"):
        pipe.extend_references(normal=MANY[3:4], max_patches=100)


@pytest.mark.parametrize("most", [0, -3, 2.5, True, "20"])
def test_a_bad_limit_in_a_file_is_refused(most, tmp_path):
    pictures = {
        "hashes": {"normal": ["a", "b"], "abnormal": ["c"]},
        "false_alarm": None,
        "patches": {"normal": [4, 4], "abnormal": [4, 4]},
        "max_patches": most,
    }
    with pytest.raises(ValueError, match="expected pictures to be pictures or null"):
        IdealReferences.load(rewritten(tmp_path / "bad.safetensors", pictures=pictures))


def test_a_file_of_before_has_no_limit(pipe, tmp_path):
    references = pipe.encode_references(normal=MANY[:2])
    header = references.pictures.header()
    assert header.pop("max_patches") is None
    assert ReferencePictures.from_file(json.loads(json.dumps(header)), references._tensors()).max_patches is None


def test_on_the_command_line(tiny_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("good").mkdir()
    for place, picture in enumerate(MANY[:4]):
        Image.fromarray(picture).save(f"good/{place}.png")
    made_by = ["references", "--model", str(tiny_folder), "--device", "cpu"]
    assert main([*made_by, "--normal", "good", "--max-patches", "40", "--out", "nut.safetensors"]) == 0
    loaded = IdealReferences.load("nut.safetensors")
    assert (len(loaded.normal_features[0]), loaded.pictures.max_patches) == (40, 40)
    capsys.readouterr()
    assert main(["references", "--show", "nut.safetensors"]) == 0
    assert "40, at most 40 are kept" in capsys.readouterr().out
    for arguments, message in (
        (["--normal", "good", "--max-patches", "0", "--out", "a"], "--max-patches: expected an integer >= 1, got 0"),
        (
            ["--normal", "good", "--max-patches", "3", "--out", "a"],
            "--max-patches: expected at least one for each of 4",
        ),
        (["--extend", "nut.safetensors", "--normal", "good", "--max-patches", "9"], "expected it when the references"),
        (["--show", "nut.safetensors", "--max-patches", "9"], "--show: expected no argument but --out with it"),
    ):
        assert main([*made_by, *arguments]) == 3
        assert message in capsys.readouterr().err
