"""Many references: read in parts, searched in chunks, with the results of one piece."""

import numpy as np
import pytest
import torch

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, normal_variation_eraser, reference_inputs
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
