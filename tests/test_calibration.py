"""Calibration: references scored as if they were new, from the reference set alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from modeling_ideal import Calibration, IdealReferences, calibrate, encode_calibrated
from modeling_ideal.augmentation import CHANGES, altered_copies, altered_masks
from modeling_ideal.masks import patch_masks
from modeling_ideal.reference_scores import LEAST_DIVERSITY, LEVEL_FRACTION, diversity, equal_pictures

from .conftest import PATCH, random_images, random_masks, tiny_model


def parts(count, seed):
    """Smooth pictures (count, 3, 32, 32) that differ a little."""
    common, own = random_images(1, seed=99, size=(8, 8)), random_images(count, seed=seed, size=(8, 8))
    return F.interpolate(common + 0.2 * own, size=(8 * PATCH, 8 * PATCH), mode="bicubic")


@pytest.fixture
def pictures():
    """Four normal and two abnormal references with masks."""
    masks = random_masks(2)
    return parts(4, 1), parts(2, 2) + 3 * masks[:, None], masks


def test_each_normal_reference_is_scored_against_the_others(model, pictures):
    normal, abnormal, masks = pictures
    expected = [
        model(normal[index : index + 1], normal[[other for other in range(4) if other != index]], abnormal, masks)
        for index in range(4)
    ]
    calibration = calibrate(model, *pictures)
    assert calibration.normal_scores == pytest.approx([output.scores.item() for output in expected], abs=1e-5)


def test_each_abnormal_reference_is_scored_without_its_own_vectors(model, pictures):
    normal, abnormal, masks = pictures
    calibration = calibrate(model, normal, abnormal, torch.ones_like(masks))  # all of the picture is the defect
    for index, score in enumerate(calibration.abnormal_scores):
        other = slice(1 - index, 2 - index)
        own = model(abnormal[index : index + 1], normal, abnormal[other], torch.ones_like(masks)[other])
        assert score == pytest.approx(own.scores.item(), abs=1e-5)


def test_only_the_defect_of_an_abnormal_reference_counts(model, pictures):
    normal, abnormal, masks = pictures
    spoilt = abnormal.clone()
    spoilt[:, :, -2 * PATCH :] = 9.0  # something outside the mask that no normal reference has
    marked, unmarked = (calibrate(model, normal, spoilt, choice).abnormal_scores for choice in (masks, None))
    for index in range(2):
        other = slice(1 - index, 2 - index)
        output = model(spoilt[index : index + 1], normal, spoilt[other], masks[other])
        assert marked[index] < output.scores.item()  # with the same vectors
    assert len(unmarked) == 2


def test_a_single_reference_is_scored_by_copies_of_itself(model, pictures):
    normal, abnormal, masks = (group[:1] for group in pictures)
    calibration = calibrate(model, normal, abnormal, masks)
    assert len(calibration.normal_scores) == len(calibration.abnormal_scores) == len(CHANGES)
    copies = altered_copies(normal, (PATCH, PATCH))
    expected = model(copies, normal, abnormal, masks).scores
    assert calibration.normal_scores == pytest.approx(expected.tolist(), abs=1e-5)
    assert calibration.supported_false_alarm == 0.5


def test_a_picture_given_twice_counts_once(model, pictures):
    normal, abnormal, masks = pictures
    once = calibrate(model, normal[:2], abnormal, masks)
    twice = calibrate(model, normal[[0, 1, 0]], abnormal[[0, 1, 1]], masks[[0, 1, 1]])
    assert len(twice.normal_scores) == len(twice.abnormal_scores) == 2
    assert twice.supported_false_alarm == once.supported_false_alarm == pytest.approx(1 / 3)
    assert len(calibrate(model, normal[[0, 0]]).normal_scores) == len(CHANGES)
    alone, again = calibrate(model, normal[:2]), calibrate(model, normal[[0, 1, 0]])
    assert again.normal_scores == pytest.approx(alone.normal_scores, abs=1e-5)  # matching alone cares for no twins


def test_normal_references_alone(model, pictures):
    calibration = calibrate(model, pictures[0])
    assert calibration.abnormal_scores == ()
    assert calibration == Calibration.from_scores(calibration.normal_scores, diversity=calibration.diversity)


def test_diversity_is_the_mean_distance_of_all_pairs_of_patches():
    random = np.random.default_rng(0)
    pictures = [random.normal(1, 1, (5, 3)), random.normal(0, 1, (4, 3))]
    means = []
    for picture in pictures:
        units = [patch / np.linalg.norm(patch) for patch in picture]
        means.append(np.mean([(1 - one @ other) / 2 for one in units for other in units]))
    expected = np.sqrt(means[0] * means[1])
    assert diversity([torch.tensor(picture) for picture in pictures]) == pytest.approx(expected)
    assert diversity([torch.ones(4, 3)]) == LEAST_DIVERSITY


def test_a_calibration_knows_the_diversity_of_good_patches(model, pictures, tmp_path):
    normal, abnormal, masks = pictures
    model.config.top_fraction = LEVEL_FRACTION
    references = encode_calibrated(model, *pictures)
    features = model.extract_features(normal).flatten(1, 2)
    assert references.calibration.diversity == pytest.approx(diversity(features), rel=1e-4)
    references.save(tmp_path / "part.safetensors")
    loaded = IdealReferences.load(tmp_path / "part.safetensors")
    assert loaded.calibration == references.calibration
    assert loaded.calibrated_for(0.5) == references.calibrated_for(0.5)
    alone = calibrate(model, None, abnormal, masks)
    marked = patch_masks(masks, (PATCH, PATCH))
    outside = [part[~mark] for part, mark in zip(model.extract_features(abnormal), marked, strict=True)]
    assert alone.diversity == pytest.approx(diversity(outside), rel=1e-4)


def test_the_level_follows_the_image_score(model, pictures):
    """Diversity is compared with scores of another top fraction as with those that its level was found with."""
    model.config.score_prior = {"level": -2.0, "alone": 0.5, "without_normal": 0.7}
    model.config.top_fraction = LEVEL_FRACTION
    references = encode_calibrated(model, *pictures)
    usual, other = references.calibrated_for(LEVEL_FRACTION), references.calibrated_for(0.5)
    ratio = np.mean(np.log(other.normal_scores)) - np.mean(np.log(usual.normal_scores))
    assert np.log(other.diversity / usual.diversity) == pytest.approx(ratio, abs=1e-5)
    alone = calibrate(model, pictures[0])
    assert np.log(alone.diversity / usual.diversity) == pytest.approx(0.5, abs=1e-5)
    without_normal = calibrate(model, None, *pictures[1:])
    model.config.score_prior = {"level": -2.0, "alone": 0.5}
    same_level = calibrate(model, None, *pictures[1:])
    assert np.log(without_normal.diversity / same_level.diversity) == pytest.approx(0.7, abs=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_abnormal_references_alone_are_normal_outside_their_masks(model, pictures, count):
    _, abnormal, masks = pictures
    calibration = calibrate(model, None, abnormal[:count], masks[:count])
    assert len(calibration.normal_scores) == len(calibration.abnormal_scores) == {1: len(CHANGES), 2: 2}[count]
    assert calibration.supported_false_alarm == pytest.approx(1 / (count + 1))


def test_abnormal_references_alone_need_masks(model, pictures):
    with pytest.raises(ValueError, match=r"expected normal_refs, or masks .* to calibrate; got neither"):
        calibrate(model, None, pictures[1])


def test_several_reference_sets_are_refused(model):
    with pytest.raises(
        ValueError, match=r"normal_refs: expected one reference set \(n, 3, H, W\).*\(2, 1, 3, 32, 32\)"
    ):
        calibrate(model, random_images(2, 1))


def test_encoded_references_are_those_of_the_model_and_no_picture_is_encoded_twice(model, pictures, monkeypatch):
    plain = model.encode_references(*pictures)
    seen = []
    extract = model.extract_features
    monkeypatch.setattr(model, "extract_features", lambda pixels, *_: seen.append(len(pixels)) or extract(pixels))
    calibrated = encode_calibrated(model, *pictures)
    assert sum(seen) == 6
    assert torch.equal(calibrated.deviation_vectors, plain.deviation_vectors)
    assert calibrated.fingerprint == plain.fingerprint
    assert calibrated.calibration == calibrate(model, *pictures)
    assert torch.equal(model(parts(1, 3), references=calibrated).scores, model(parts(1, 3), references=plain).scores)


def test_saved_and_moved_with_the_references(model, pictures, tmp_path):
    references = encode_calibrated(model, *pictures, false_alarm=0.2)
    references.save(tmp_path / "part.safetensors")
    assert IdealReferences.load(tmp_path / "part.safetensors").calibration == references.calibration
    assert references.to("meta").calibration == references.calibration
    model.encode_references(*pictures).save(tmp_path / "plain.safetensors")
    assert IdealReferences.load(tmp_path / "plain.safetensors").calibration is None


def test_a_threshold_for_other_settings_needs_no_pictures(model, pictures, tmp_path):
    references = encode_calibrated(model, *pictures, false_alarm=0.2)
    references.save(tmp_path / "part.safetensors")
    other = tiny_model(top_fraction=0.5)
    for kept in (references, IdealReferences.load(tmp_path / "part.safetensors"), references.to("meta")):
        assert kept.calibrated_for(0.1) == references.calibration
        assert kept.calibrated_for(0.5) == calibrate(other, *pictures, false_alarm=0.2)
        assert kept.calibrated_for(0.5) is kept.calibrated_for(0.5)
    other.check_encoded(references)  # for the threshold alone
    without = replace(references, scores=None)
    assert without.calibrated_for(0.1) == references.calibration
    with pytest.raises(ValueError, match=r"to find the threshold for top_fraction=0.5, got .* top_fraction=0.1 alone"):
        without.calibrated_for(0.5)
    assert model.encode_references(*pictures).calibrated_for(0.5) is None
    for fraction in (0, 2, float("nan")):
        with pytest.raises(ValueError, match=f"top_fraction: expected a number > 0, at most 1, got {fraction}"):
            references.calibrated_for(fraction)


def test_a_threshold_for_the_patches_that_count(model, pictures):
    references = encode_calibrated(model, *pictures)
    counted = torch.ones(8, 8, dtype=torch.bool)
    assert references.calibrated_for(0.1, counted) == references.calibration
    counted[:, :6] = False  # the defects too
    calibration = references.calibrated_for(0.1, counted)
    assert calibration.abnormal_scores == ()
    for index, score in enumerate(calibration.normal_scores):
        others = [other for other in range(4) if other != index]
        maps = model(pictures[0][index : index + 1], pictures[0][others], *pictures[1:]).patch_scores
        assert score == pytest.approx(maps[0, :, 6:].max().item(), abs=1e-5)
    with pytest.raises(ValueError, match=r"references' size, \(8, 8\) patches, .* got \(4, 8\)"):
        references.calibrated_for(0.1, counted[:4])
    with pytest.raises(ValueError, match="expected some normal patch that is not ignored"):
        references.calibrated_for(0.1, torch.zeros(8, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="the patches that are not ignored, got"):
        replace(references, scores=None).calibrated_for(0.1, counted)


@pytest.mark.parametrize("kind", ["pixels", "bfloat16", "features", "arrays"])
def test_equal_pictures_are_found_in_any_form(kind):
    pictures = random_images(3)[[0, 1, 0, 2, 1]]
    forms = {"pixels": pictures, "bfloat16": pictures.bfloat16(), "features": pictures.permute(0, 2, 3, 1)}
    assert equal_pictures(forms.get(kind, pictures.numpy())) == [[0, 2], [1, 4], [3]]
    assert equal_pictures([np.zeros((2, 3)), np.zeros((3, 2)), np.zeros(6)]) == [[0], [1], [2]]


def test_a_training_model_is_calibrated_without_dropout_and_goes_on_training(model, pictures):
    expected = calibrate(model, *pictures)
    model.train()
    assert calibrate(model, *pictures) == expected
    assert model.training


def test_a_clear_defect_lies_beyond_the_threshold_and_a_new_normal_part_does_not(model):
    """Normal matching alone, since the tiny model's encoder is random."""
    references = encode_calibrated(model, parts(12, 1), false_alarm=0.05)
    scores = model(torch.cat([parts(8, 5), parts(8, 6) + 3 * random_masks(8)[:, None]]), references=references).scores
    assert isinstance(references.calibration, Calibration)
    assert (scores[:8] <= references.calibration.threshold).sum() >= 6
    assert (scores[8:] > references.calibration.threshold).all()


def test_copies_are_repeatable_moved_and_keep_their_kind():
    images = parts(2, 1)
    copies = altered_copies(images, (PATCH, PATCH))
    assert copies.shape == (2 * len(CHANGES), 3, 32, 32)
    assert torch.equal(copies, altered_copies(images, (PATCH, PATCH)))
    for image, group in zip(images, copies.split(len(CHANGES)), strict=True):
        for copy in group:
            assert 0.005 < (copy - image).square().mean() / image.var() < 1


def test_masks_move_with_their_pictures():
    masks = torch.zeros(1, 40, 40)
    masks[0, 12:20, 20:30] = 1
    images = masks[:, None].expand(-1, 3, -1, -1) * 10.0
    moved, copies = altered_masks(masks, (PATCH, PATCH)), altered_copies(images, (PATCH, PATCH))
    assert moved.dtype == torch.bool
    for mask, copy, change in zip(moved, copies, CHANGES, strict=True):
        assert (copy.mean(0) > 5).logical_xor(mask).float().mean() < 0.02
        rows, columns = mask.nonzero(as_tuple=True)
        if change.degrees == 0:  # right and down are what they say
            assert rows.float().mean() - 15.5 == pytest.approx(PATCH * change.down, abs=0.6)
            assert columns.float().mean() - 24.5 == pytest.approx(PATCH * change.right, abs=0.6)
