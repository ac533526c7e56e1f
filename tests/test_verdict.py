"""The verdict: label, mask, regions and overlay never contradict each other, and a threshold fits its score."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import pipeline

from modeling_ideal import IdealImageProcessor, IdealReferences
from modeling_ideal.pipeline_results import anomalous_pixels, make_verdict
from modeling_ideal.threshold import Calibration

from .conftest import PATCH, tiny_model
from .pictures import photograph

ASKED = {"return_mask": True, "return_regions": True}
SIZE = (8 * PATCH, 8 * PATCH)
GIVEN = {
    "normal": [photograph(1, SIZE), photograph(2, SIZE)],
    "abnormal": [photograph(3, SIZE)],
    "masks": [(4, 4, 20, 16)],
}


def make_pipe(model=None, **settings):
    processor = IdealImageProcessor(**{"size": 8 * PATCH, "patch_size": PATCH, **settings})
    return pipeline("anomaly-detection", model=model or tiny_model(), image_processor=processor)


@pytest.fixture
def pipe():
    pipe = make_pipe()
    pipe.set_references(**GIVEN)
    return pipe


def check_agreement(result, ignored=None):
    """Label, mask, regions and the rule at the threshold say the same."""
    anomalous = result["label"] == "anomalous"
    assert anomalous == (result["score"] >= result["threshold"])
    assert result["mask"].any() == bool(result["regions"]) == anomalous
    assert sum(region["area"] for region in result["regions"]) == result["mask"].sum()
    if anomalous:
        judged = result["anomaly_map"] if ignored is None else np.where(ignored, -1, result["anomaly_map"])
        assert result["mask"][judged == judged.max()].all()
        assert result["mask"][judged >= np.float64(result["threshold"])].all()
        assert result["regions"][0]["score"] == judged.max()
    if ignored is not None:
        assert not (result["mask"] & ignored).any()
    if "overlay" in result:
        colors = np.asarray(result["overlay"]).astype(int)
        outside = colors[~result["mask"]]
        assert (outside[:, 0] <= outside[:, 1] + 1).all()  # only the mask may be red; the picture is grey


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_label_mask_and_regions_agree_for_any_map(data):
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    numbers = st.floats(0, 1, width=32) | st.sampled_from([0.0, 0.25, 1.0])
    values = data.draw(st.lists(numbers, min_size=height * width, max_size=height * width))
    anomaly_map = np.array(values, np.float32).reshape(height, width)
    ignored = None
    if data.draw(st.booleans()) and height * width > 1:
        marks = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
        ignored = np.array(marks).reshape(height, width)
        ignored.flat[data.draw(st.integers(0, height * width - 1))] = False
        anomaly_map = np.where(ignored, 0, anomaly_map).astype(np.float32)
    score, threshold = data.draw(numbers), data.draw(st.floats(0, 1) | st.sampled_from([0.0, 0.25, 1.0]))
    picture = np.full((height, width, 3), 128, np.uint8)
    result = make_verdict(score, anomaly_map, None, threshold=threshold, ignored=ignored, picture=picture, **ASKED)
    check_agreement(result, ignored)


def test_a_flattened_peak_is_marked_at_half_its_height():
    rows, columns = np.mgrid[:41, :41]
    bump = 0.1 + 0.2 * np.exp(-((rows - 20) ** 2 + (columns - 20) ** 2) / 50).astype(np.float32)
    mask = anomalous_pixels(bump, threshold=0.4)  # above the highest value, 0.3
    np.testing.assert_array_equal(mask, bump >= (bump.max() + np.median(bump)) / 2)
    assert 50 < mask.sum() < 200
    np.testing.assert_array_equal(anomalous_pixels(bump, threshold=0.15), bump >= 0.15)  # the lower one
    constant = np.full((4, 4), 0.3, np.float32)
    assert anomalous_pixels(constant, threshold=0.5).all()


def test_a_peak_smaller_than_the_score_is_made_of_marks_nothing():
    anomaly_map = np.full((30, 40), 0.1, np.float32)
    anomaly_map[3, 3] = 1
    picture = np.full((30, 40, 3), 128, np.uint8)
    result = make_verdict(0.2, anomaly_map, None, threshold=0.5, picture=picture, **ASKED)
    check_agreement(result)
    assert result["label"] == "normal"


@pytest.mark.parametrize("smoothing", [0, 4, 30])
@pytest.mark.parametrize("box", [None, (0, 0, 12, 8)])
def test_the_pipeline_never_contradicts_itself(pipe, smoothing, box):
    ignored = None
    if box:
        ignored = np.zeros(SIZE, bool)
        ignored[:8, :12] = True
    images = [photograph(seed, SIZE) for seed in range(20, 26)]
    options = {"smoothing": smoothing, "ignore_mask": box, "return_overlay": True, **ASKED}
    labels = set()
    for share in (0.0, 0.3, 0.7, 1.0):
        scores = [result["score"] for result in pipe(images, ignore_mask=box)]
        for threshold in (share, float(np.quantile(scores, share))):
            for result in pipe(images, threshold=threshold, batch_size=3, **options):
                check_agreement(result, ignored)
                labels.add(result["label"])
    assert labels == {"normal", "anomalous"}
    for result in pipe(images, **options):
        check_agreement(result, ignored)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_score_or_map_that_is_no_number_is_refused(value):
    plain = np.zeros((3, 3), np.float32)
    broken = plain.copy()
    broken[1, 1] = value
    with pytest.raises(ValueError, match=r"expected a finite score and map, got score \S+ and 0 pixels"):
        make_verdict(value, plain, None)
    with pytest.raises(ValueError, match=r"got score 0\.2 and 1 pixels that are NaN or infinite: the references or"):
        make_verdict(0.2, broken, None)


def test_confidence_is_the_share_of_good_parts_below(pipe):
    calibration = Calibration.from_scores([0.2, 0.22, 0.19, 0.21], false_alarm=0.1)
    at = make_verdict(calibration.threshold, np.zeros((3, 3), np.float32), calibration)
    assert at["label"] == "anomalous"
    assert at["confidence"] == pytest.approx(0.9)
    below = make_verdict(np.nextafter(calibration.threshold, 0), np.zeros((3, 3), np.float32), calibration)
    assert below["label"] == "normal"


def test_another_top_fraction_has_a_threshold_of_its_own(pipe, tmp_path):
    image = photograph(7, SIZE)
    plain, other = pipe(image), pipe(image, top_fraction=0.5)
    assert other["score"] < plain["score"]
    assert other["threshold"] < plain["threshold"]
    # As if the model had been set to it before the references were encoded:
    twin = make_pipe(tiny_model(top_fraction=0.5))
    twin.set_references(**GIVEN)
    expected = twin(image)
    for name in ("score", "threshold", "confidence"):
        assert other[name] == pytest.approx(expected[name], abs=1e-6)
    pipe.set_references(**GIVEN).save(tmp_path / "product.safetensors")
    by_file = pipe(image, references=tmp_path / "product.safetensors", top_fraction=0.5)
    assert by_file["threshold"] == pytest.approx(other["threshold"], abs=1e-6)


def test_an_ignored_area_is_left_out_of_the_threshold_too(pipe):
    image = photograph(7, SIZE)
    references = pipe.set_references(**GIVEN)
    counted = torch.ones(8, 8, dtype=torch.bool)
    counted[:2, :3] = False
    result = pipe(image, ignore_mask=(0, 0, 3 * PATCH, 2 * PATCH))
    fraction = pipe.model.config.top_fraction
    assert result["threshold"] == references.calibrated_for(fraction, counted).threshold
    assert pipe(image, ignore_mask=np.zeros(SIZE))["threshold"] == pipe(image)["threshold"]


def test_references_without_scores_need_a_threshold_for_other_settings(pipe):
    references = pipe.set_references(**GIVEN)
    references.scores = None
    image = photograph(7, SIZE)
    with pytest.raises(ValueError, match=r"expected patch scores with them.*top_fraction=0\.5.*encode the references"):
        pipe(image, top_fraction=0.5)
    [result] = pipe([image], ignore_mask=(0, 0, 12, 8))
    assert result["error"].startswith("images[0]: references: expected patch scores with them")
    given = pipe(image, top_fraction=0.5, threshold=0.1)
    assert given["threshold"] == 0.1
    assert "confidence" not in given


@pytest.mark.parametrize("tiling", [None, True])
@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("size", 4 * PATCH, r"expected a processor with size .*32, .* got .*16"),
        ("image_mean", [0.5, 0.5, 0.5], "expected a processor with image_mean .* got .*0.5"),
        ("keep_aspect_ratio", True, "expected a processor with keep_aspect_ratio False, .* got True"),
    ],
)
def test_references_of_another_processor_are_refused(pipe, tmp_path, name, changed, message, tiling):
    pipe.set_references(**GIVEN, tiling=tiling).save(tmp_path / "product.safetensors")
    other = make_pipe(pipe.model, **{name: changed})
    if tiling and name in ("size", "keep_aspect_ratio"):  # tiles have their own size
        assert other(photograph(7, SIZE), references=tmp_path / "product.safetensors")["score"] > 0
        return
    with pytest.raises(ValueError, match=message):
        other(photograph(7, SIZE), references=tmp_path / "product.safetensors")
    with pytest.raises(ValueError, match=message):
        other.set_references(IdealReferences.load(tmp_path / "product.safetensors"))


def test_references_that_were_set_are_checked_in_every_call(pipe):
    image = photograph(7, SIZE)
    mean = pipe.image_processor.image_mean
    pipe.image_processor.image_mean = [0.4, 0.4, 0.4]
    with pytest.raises(ValueError, match="expected a processor with image_mean"):
        pipe(image)
    pipe.image_processor.image_mean = mean
    pipe(image)
    pipe.model.deviation_encoder.vectors.weight.data.add_(1e-3)  # as a fused optimizer does
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        pipe(image)


def test_warnings_of_references_are_repeated(pipe, tmp_path):
    with pytest.warns(UserWarning, match="2 good pictures alone can support a false-alarm rate of") as caught:
        references = pipe.set_references(**GIVEN, false_alarm=0.01)
    assert [str(each.message) for each in caught] == references.warnings
    assert caught[0].filename == __file__
    references.save(tmp_path / "product.safetensors")
    with pytest.warns(UserWarning, match="support a false-alarm rate") as caught:
        pipe(photograph(7, SIZE), references=tmp_path / "product.safetensors")
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"default threshold of 0\.5"):
        pipe(photograph(7, SIZE), abnormal=[photograph(3, SIZE)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe([photograph(7, SIZE)])  # once is enough
