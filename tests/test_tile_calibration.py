"""References in tiles: scored as if they were new, each tile encoded once, equal pictures counted once."""

import numpy as np
import pytest

from modeling_ideal import IdealImageProcessor
from modeling_ideal.augmentation import CHANGES
from modeling_ideal.tiling import TiledDetector

from .conftest import PATCH
from .pictures import texture, with_defect

TILE = 8 * PATCH


@pytest.fixture
def detector(model):
    return TiledDetector(model, IdealImageProcessor(size=TILE, patch_size=PATCH))


def test_calibrated_by_blocks_against_all_that_shares_no_pixel_with_them(detector):
    """Two pictures of one tile: each is scored against the other. A larger one is also compared with itself."""
    normal = [texture(TILE, TILE, seed) for seed in range(2)]
    (first, one), (second, other) = (with_defect(texture(TILE, TILE, seed), 12, 12, 10) for seed in (3, 4))
    calibration = detector.calibrate(normal, [first, second], [one, other], false_alarm=0.3)
    references = detector.encode_references(normal[1:], [first, second], [one, other])
    assert calibration.normal_scores[0] == pytest.approx(detector.detect(normal[0], references).score, abs=1e-6)
    references = detector.encode_references(normal, [second], [other])
    assert calibration.abnormal_scores[0] <= detector.detect(first, references).score + 1e-6  # of the defect alone
    assert (len(calibration.normal_scores), len(calibration.abnormal_scores)) == (2, 2)

    detector = TiledDetector(detector.model, detector.processor, overlap=0)
    small, large = texture(TILE, TILE, 5), np.tile(texture(TILE, TILE, 6), (1, 4, 1))  # four equal tiles
    assert detector.calibrate([small, large]).normal_scores[1] < 1e-5
    assert detector.calibrate([small, large[:, :TILE]]).normal_scores[1] > 0.05


def test_each_tile_is_encoded_once(detector, monkeypatch):
    encoded, extract = [], detector.model.extract_features
    monkeypatch.setattr(
        detector.model, "extract_features", lambda pixels, *rest: encoded.append(len(pixels)) or extract(pixels, *rest)
    )
    normal = [texture(70, 90, seed) for seed in range(3)]
    defects = [with_defect(texture(70, 90, seed), 2, 2, 8) for seed in (3, 4)]
    abnormal, masks = zip(*defects, strict=True)
    detector.encode_references(normal, abnormal, masks, false_alarm=0.05)
    tiles_with_a_defect = 2 * sum(part.any() for part in detector.encoder.grid(masks[0]).cut(masks[0]))
    assert sum(encoded) == 3 * len(detector.encoder.grid(normal[0])) + tiles_with_a_defect


def test_equal_references_are_one(detector):
    """A picture is not new if it is a reference too: two equal ones would score 0, and every new picture above it."""
    picture, defect = texture(70, 70, 0), with_defect(texture(70, 70, 2), 20, 20, 10)
    once = detector.encode_references([picture], [defect[0]], [defect[1]], false_alarm=0.05)
    twice = detector.encode_references([picture] * 2, [defect[0]] * 2, [defect[1]] * 2, false_alarm=0.05)
    assert twice.num_normal == twice.num_abnormal == 2
    assert len(twice.calibration.normal_scores) == len(once.calibration.normal_scores)
    assert twice.calibration.normal_scores == pytest.approx(once.calibration.normal_scores, abs=0.01)
    assert min(twice.calibration.normal_scores) > 0.01
    others = detector.encode_references([picture, picture, texture(70, 70, 1)], false_alarm=0.05)
    assert len(others.calibration.normal_scores) == 2


def test_a_single_normal_picture_or_none_gives_a_threshold_too(detector):
    normal = texture(70, 90, 0)
    single = detector.calibrate([normal])
    assert len(single.normal_scores) == len(CHANGES)
    assert single.supported_false_alarm == 0.5  # 1 / (1 + 1): it is one part
    assert 0 < min(single.normal_scores) < single.threshold
    defects = [with_defect(texture(70, 90, seed), 20, 20, 10) for seed in (3, 4)]
    abnormal, masks = zip(*defects, strict=True)
    for count in (1, 2):
        alone = detector.calibrate((), abnormal[:count], masks[:count])
        assert 0 < min(alone.normal_scores) < alone.threshold <= 1
        assert len(alone.normal_scores) == len(alone.abnormal_scores) == (len(CHANGES) if count == 1 else 2)
