"""Regions that never count: nothing of them in the score, nothing in the map, nothing spread around them."""

import numpy as np
import pytest
import torch
from transformers import pipeline

from modeling_ideal import IdealImageProcessor, IdealReferences
from modeling_ideal.pipeline_inputs import read_ignored
from modeling_ideal.reference_scores import ReferenceScores
from modeling_ideal.scoring import scores_and_weights, weighted_map

from . import plain
from .conftest import PATCH, tiny_model
from .pictures import photograph

SIZE = (8 * PATCH, 8 * PATCH)
CORNER = (0, 0, 3 * PATCH, 2 * PATCH)  # x0, y0, x1, y1: three patches wide, two high


@pytest.fixture(scope="module")
def pipe():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    pipe = pipeline("anomaly-detection", model=tiny_model(), image_processor=processor, top_fraction=0.05)
    pipe.set_references(normal=[photograph(1, SIZE)], abnormal=[photograph(2, SIZE)], masks=[(4, 4, 20, 16)])
    return pipe


def test_the_score_is_that_of_the_other_patches(pipe):
    image = photograph(3, SIZE)
    features = pipe.model.extract_features(pipe.image_processor(query=image)["query"])
    references = pipe.set_references(normal=[photograph(1, SIZE)], abnormal=[photograph(2, SIZE)])
    scores = pipe.model.score_features(features, references, SIZE).patch_scores[0].detach()
    others = torch.cat([scores[:2, 3:].flatten(), scores[2:].flatten()])
    for top_fraction in (0.01, 0.3, 1.0):
        expected = others.sort(descending=True).values[: max(1, int(len(others) * top_fraction))].mean()
        result = pipe(image, ignore_mask=CORNER, top_fraction=top_fraction)
        assert result["score"] == pytest.approx(expected.item(), abs=1e-6)


def test_the_map_is_zero_there_and_unmoved_elsewhere(pipe):
    image = photograph(3, SIZE)
    plain, masked = pipe(image)["anomaly_map"], pipe(image, ignore_mask=CORNER)["anomaly_map"]
    assert not masked[: 2 * PATCH, : 3 * PATCH].any()
    far = (slice(2 * PATCH + 20, None), slice(3 * PATCH + 20, None))  # beyond the reach of the smoothing
    np.testing.assert_allclose(masked[far], plain[far], atol=1e-6)
    assert masked[2 * PATCH :].min() > 0.5 * plain[2 * PATCH :].min()  # the zeros do not spread either


def test_nothing_of_an_ignored_patch_spreads():
    scores = torch.full((4, 4), 0.2)
    scores[0, 0] = 1.0
    counted = torch.ones(4, 4, dtype=torch.bool)
    counted[0, 0] = False
    ignored = torch.zeros(4, 4, dtype=torch.bool)
    ignored[0, 0] = True
    blurred = torch.nn.functional.avg_pool2d(scores_and_weights(scores, counted), 3, stride=1, padding=1)
    expected = torch.full((4, 4), 0.2)
    expected[0, 0] = 0
    torch.testing.assert_close(weighted_map(*blurred, ignored), expected)


def smoothing_pipe(sigma=0.7):
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(patch_smoothing=sigma), image_processor=processor)


@pytest.mark.parametrize("tiling", [None, True])
def test_smoothing_of_patch_scores_spreads_nothing_of_an_ignored_patch(tiling):
    image, given = photograph(3, SIZE), {"normal": [photograph(1, SIZE)], "false_alarm": 0, "tiling": tiling}
    sharp, smooth = smoothing_pipe(0), smoothing_pipe()
    features = sharp.model.extract_features(sharp.image_processor(query=image)["query"])
    scores = sharp.model.score_features(features, sharp.encode_references(**given), SIZE).patch_scores[0].numpy()
    counted = np.ones((8, 8))
    counted[:2, :3] = 0
    expected = (plain.smooth(scores * counted, 0.7) / plain.smooth(counted, 0.7))[counted > 0]
    for top_fraction in (0.01, 0.3, 1.0):
        result = smooth(image, **given, ignore_mask=CORNER, top_fraction=top_fraction)
        assert result["score"] == pytest.approx(plain.image_score(expected.tolist(), top_fraction), abs=1e-6)


@pytest.mark.parametrize("tiling", [None, True])
def test_a_threshold_is_for_scores_that_are_smoothed_in_the_same_way(tiling, tmp_path):
    """A reference scored as if it were new has the score that it has as a new picture, whatever is ignored."""
    pipe, first, second = smoothing_pipe(), photograph(1, SIZE), photograph(2, SIZE)
    pipe.set_references(normal=[first, second], tiling=tiling).save(tmp_path / "both.safetensors")
    counted = torch.ones(8, 8, dtype=torch.bool)
    counted[:2, :3] = False
    counted = counted if tiling is None else counted[None, None]
    for asked, here in (({}, None), ({"ignore_mask": CORNER}, counted)):
        new = pipe(first, normal=[second], tiling=tiling, false_alarm=0, threshold=0.5, **asked)["score"]
        known = IdealReferences.load(tmp_path / "both.safetensors")
        calibration = known.calibrated_for(known.top_fraction, here)
        assert calibration.normal_scores[0] == pytest.approx(new, abs=1e-6)


def test_scores_that_an_earlier_release_has_smoothed_are_not_for_ignored_patches():
    scores = ReferenceScores(torch.rand(3, 4, 4), torch.zeros(0, 4, 4), None, 3, smoothing=None)
    assert scores.calibrate(0.01, 0.05).threshold > 0
    with pytest.raises(ValueError, match="expected ones of this release, to find the threshold for the patches"):
        scores.calibrate(0.01, 0.05, counted=torch.eye(4, dtype=torch.bool))


@pytest.mark.parametrize(
    "mask",
    [CORNER, [(0, 0), (11, 0), (11, 7), (0, 7)], [CORNER], "array", "tensor"],
    ids=["box", "polygon", "boxes", "array", "tensor"],
)
def test_any_form_of_a_mask(pipe, mask):
    drawn = np.zeros(SIZE, np.uint8)
    drawn[: 2 * PATCH, : 3 * PATCH] = 255
    mask = {"array": drawn, "tensor": torch.from_numpy(drawn)}.get(mask, mask) if isinstance(mask, str) else mask
    ignored, counted = read_ignored(mask, SIZE, SIZE, (PATCH, PATCH), "ignore_mask")
    assert torch.equal(ignored, torch.from_numpy(drawn) > 0)
    assert (~counted).nonzero().tolist() == [[row, column] for row in range(2) for column in range(3)]


def test_an_empty_mask_ignores_nothing(pipe):
    image = photograph(3, SIZE)
    plain, masked = pipe(image), pipe(image, ignore_mask=np.zeros(SIZE))
    assert masked["score"] == plain["score"]
    np.testing.assert_allclose(masked["anomaly_map"], plain["anomaly_map"], atol=1e-6)


def test_one_mask_for_all_and_a_picture_it_does_not_fit(pipe):
    fits, other = pipe([photograph(3, SIZE), photograph(4)], ignore_mask=np.zeros(SIZE), batch_size=2)
    assert "score" in fits
    assert other["error"].startswith(
        "images[1], ignore_mask: expected a mask of its image's height and width (30, 40)"
    )
