"""Many references: read in parts and searched in chunks, with the results of one piece; some scored as if new."""

import numpy as np
import pytest
import torch

from modeling_ideal import (
    AnomalyDetectionPipeline,
    Calibration,
    IdealImageProcessor,
    IdealReferences,
    normal_variation_eraser,
    reference_inputs,
    reference_pictures,
)
from modeling_ideal.cli import main
from modeling_ideal.detection.drift import DriftWatch
from modeling_ideal.normal_variation_eraser import MAX_SIMILARITIES, nearest_normals, unit

from .conftest import PATCH, tiny_model
from .pictures import photograph

MANY = [photograph(index) for index in range(9)]


@pytest.fixture
def pipe():
    return AnomalyDetectionPipeline(
        model=tiny_model(), image_processor=IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    )


def same(first, second):
    """Whether two reference sets are the same to the bit."""
    assert first.calibration == second.calibration
    assert first.num_normal == second.num_normal
    assert torch.equal(first.normal_features[0], second.normal_features[0])
    assert first.pictures.normal.hashes == second.pictures.normal.hashes
    return True


@pytest.mark.parametrize("at_once", [4, 8, 9])
def test_references_read_in_parts_are_those_read_at_once(pipe, monkeypatch, at_once):
    given = {"normal": MANY, "abnormal": [photograph(20)], "masks": [(2, 3, 20, 15)], "false_alarm": 0.1}
    expected = pipe.encode_references(**given)
    seen = []
    read = reference_inputs.read_pictures
    monkeypatch.setattr(reference_inputs, "PICTURES_AT_ONCE", at_once)
    monkeypatch.setattr(
        reference_inputs,
        "read_pictures",
        lambda model, **images: seen.append(len(images["normal_refs"])) or read(model, **images),
    )
    assert same(pipe.encode_references(**given), expected)
    assert seen == {4: [4, 4, 1], 8: [8, 1], 9: [9]}[at_once]
    known = pipe.encode_references(**{**given, "normal": MANY[:2]})
    assert same(pipe.extend_references(known, normal=MANY[2:]), expected)


def test_equal_pictures_in_several_parts_count_once(pipe, monkeypatch):
    expected = pipe.encode_references(normal=[MANY[0]] * 6)
    monkeypatch.setattr(reference_inputs, "PICTURES_AT_ONCE", 4)
    assert same(pipe.encode_references(normal=[MANY[0]] * 6), expected)


def test_the_place_of_a_bad_picture_is_that_in_the_whole(pipe, monkeypatch):
    monkeypatch.setattr(reference_inputs, "PICTURES_AT_ONCE", 4)
    for place in (2, 6, 8):
        pictures = [*MANY[:place], np.full((4, 4), np.nan), *MANY[place + 1 :]]
        with pytest.raises(ValueError, match=rf"^normal\[{place}\]: expected finite values"):
            pipe.encode_references(normal=pictures)


def test_directions_are_made_when_they_are_needed(pipe):
    references = pipe.encode_references(normal=MANY[:2], false_alarm=0)
    assert "normal_directions" not in vars(references)
    pipe(MANY[3], references=references)
    assert torch.equal(references.normal_directions[0], unit(references.normal_features[0]))


@pytest.mark.parametrize("block", [3000, 1000, 1499, 333])  # the last two leave fewer than 5 for the last block
def test_a_chunked_search_finds_what_one_product_finds(block, monkeypatch):
    monkeypatch.setattr(normal_variation_eraser, "NORMALS_AT_ONCE", block)
    normals = unit(torch.randn(3000, 8, generator=torch.Generator().manual_seed(0)))
    queries = unit(torch.randn(2 * MAX_SIMILARITIES // 3000, 8, generator=torch.Generator().manual_seed(1)))
    cosines, places = nearest_normals(queries, normals, 5)
    expected = (queries @ normals.T).topk(5)
    torch.testing.assert_close(cosines, expected.values)
    assert torch.equal(places, expected.indices)


@pytest.fixture
def few_scored(monkeypatch):
    """Calibration that scores five pictures of a kind."""
    monkeypatch.setattr(reference_pictures, "MOST_SCORED", 5)


def scored_plainly(pipe, pictures, **given):
    """The scores of the five pictures with the lowest hashes, each against references encoded without it."""
    hashes = pipe.encode_references(normal=pictures, false_alarm=0).pictures.normal.hashes
    found = []
    for place, picture in enumerate(pictures):
        if sorted(hashes).index(hashes[place]) < 5:
            others = [*pictures[:place], *pictures[place + 1 :]]
            found.append(pipe(picture, normal=others, **given, false_alarm=0, threshold=0.5)["score"])
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("given", [{}, {"abnormal": [photograph(20)], "masks": [(2, 3, 20, 15)]}], ids=["N", "NA"])
def test_of_many_references_some_are_scored_against_all_others(pipe, few_scored, given):
    references = pipe.encode_references(normal=MANY, **given, false_alarm=0.1)
    found = references.calibration
    assert found.normal_scores == pytest.approx(scored_plainly(pipe, MANY, **given), abs=1e-5)
    assert references.scores.num_normal == 9
    expected = Calibration.from_scores(
        found.normal_scores, found.abnormal_scores, 0.1, 9, pipe.model.config.prior, found.diversity
    )
    assert expected == found
    assert found.supported_false_alarm == pytest.approx(1 / 6)
    assert "5 good pictures, as many of the 9 as are scored, alone can support a false-alarm rate of 16.7%" in (
        found.warning
    )
    assert DriftWatch(references).limit < 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_which_are_scored_depends_on_no_order(pipe, few_scored):
    pictures = [*MANY, MANY[3]]
    one, other = (pipe.encode_references(normal=each) for each in (pictures, pictures[::-1]))
    assert len(one.calibration.normal_scores) == 5
    assert sorted(other.calibration.normal_scores) == pytest.approx(sorted(one.calibration.normal_scores), abs=1e-6)
    assert other.calibration.threshold == pytest.approx(one.calibration.threshold, abs=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_many_references_are_saved_shown_and_extended(pipe, few_scored, tmp_path, capsys):
    expected = pipe.encode_references(normal=MANY)
    known = pipe.encode_references(normal=MANY[:7])
    known.save(tmp_path / "part.safetensors")
    assert same(IdealReferences.load(tmp_path / "part.safetensors"), known)
    assert same(pipe.extend_references(tmp_path / "part.safetensors", normal=MANY[7:]), expected)
    for references, scored in ((expected, 5), (pipe.encode_references(normal=MANY[:4]), 4)):
        references.save(tmp_path / "part.safetensors")
        assert main(["references", "--show", str(tmp_path / "part.safetensors")]) == 0
        said = capsys.readouterr().out
        lines = [line for line in said.splitlines() if line.startswith("normal ") and "0." in line]
        assert [float(line.split()[-1]) for line in lines] == pytest.approx(
            references.calibration.normal_scores, rel=5e-3
        )
        sentence = "Of 9 different normal references 5, chosen by lot, were scored as if they were new"
        assert (sentence in said) == (scored == 5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_as_many_as_are_scored_change_nothing(pipe, monkeypatch):
    given = {"normal": MANY, "abnormal": [photograph(index) for index in range(20, 23)]}
    expected = pipe.encode_references(**given)
    monkeypatch.setattr(reference_pictures, "MOST_SCORED", 9)
    assert same(pipe.encode_references(**given), expected)
    monkeypatch.setattr(reference_pictures, "MOST_SCORED", 2)
    assert len(pipe.encode_references(**given).calibration.abnormal_scores) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_many_abnormal_references_alone(pipe, few_scored):
    given = {"abnormal": MANY, "masks": [(2, 3, 20, 15)] * 9}
    references = pipe.encode_references(**given)
    assert (references.scores.num_normal, len(references.calibration.normal_scores)) == (9, 5)
    assert references.scores.marked.shape == references.scores.abnormal.shape
