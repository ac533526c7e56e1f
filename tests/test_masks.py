"""Masks of abnormal references, in every form that people have."""

import numpy as np
import pytest
import torch
from PIL import Image

from modeling_ideal import IdealImageProcessor


@pytest.fixture
def processor():
    return IdealImageProcessor(size=32, patch_size=4)


def mask_of(processor, picture, mask):
    return processor(abnormal_refs=[picture], masks=[mask])["masks"][0].numpy()


def test_masks_in_every_form(picture, tmp_path):
    processor = IdealImageProcessor(size={"height": 30, "width": 40}, patch_size=2)  # the picture's own size
    expected = np.zeros((30, 40), bool)
    expected[5:12, 10:25] = True
    Image.fromarray(expected.astype(np.uint8) * 255).save(tmp_path / "mask.png")
    kinds = {
        "path": tmp_path / "mask.png",
        "picture": Image.open(tmp_path / "mask.png"),
        "one bit": Image.fromarray(expected),
        "several values": expected.astype(np.uint8) * np.arange(1, 41, dtype=np.uint8),
        "bool": expected,
        "float": expected.astype(np.float32) * 0.1,
        "tensor": torch.from_numpy(expected),
        "tensor (1, H, W)": torch.from_numpy(expected)[None],
        "colours": np.dstack([expected * 0, expected * 200, expected * 0]).astype(np.uint8),
        "RGBA": Image.fromarray(np.dstack([expected * 255] * 3 + [np.full((30, 40), 255)]).astype(np.uint8)),
        "box": (10, 5, 25, 12),
        "box of floats": [10.0, 5.0, 25.0, 12.0],
        "polygon": [(10, 5), (24, 5), (24, 11), (10, 11)],
        "two boxes": [(10, 5, 18, 12), (17, 5, 25, 12)],
    }
    for name, mask in kinds.items():
        np.testing.assert_array_equal(mask_of(processor, picture, mask), expected, err_msg=name)
    bare = processor(abnormal_refs=picture, masks=(10, 5, 25, 12))["masks"][0]
    np.testing.assert_array_equal(bare, expected)


def test_a_single_anomalous_pixel_survives_resizing(processor):
    image = np.zeros((1000, 800, 3), np.uint8)
    for row, column in ((0, 0), (517, 333), (999, 799)):
        mask = np.zeros((1000, 800), bool)
        mask[row, column] = True
        small = mask_of(processor, image, mask)
        assert small[row * 32 // 1000, column * 32 // 800]
        assert 1 <= small.sum() <= 4


BAD_MASKS = {
    "empty": (
        np.zeros((30, 40)),
        r"masks\[0\]: expected at least one anomalous \(non-zero\) pixel, got none among 1200",
    ),
    "another size": (np.ones((40, 30)), r"masks\[0\]: expected .* height and width \(30, 40\), got \(40, 30\)"),
    "NaN": (np.full((30, 40), np.nan), r"masks\[0\]: expected finite values"),
    "box the wrong way": (
        (9, 9, 3, 12),
        r"expected a box \(x0, y0, x1, y1\) with x0 < x1 and y0 < y1, got \(9, 9, 3, 12\)",
    ),
    "box outside": ((100, 100, 120, 120), r"masks\[0\]: expected at least one anomalous"),
    "infinite box": ((0, 0, float("inf"), 5), r"masks\[0\]: expected finite coordinates"),
    "two points": ([(1, 1), (3, 3)], r"expected an image, an array, a box .* or a polygon of at least three"),
    "nothing": (None, r"masks\[0\]: expected an image, .* got None"),
}


@pytest.mark.parametrize("case", BAD_MASKS)
def test_bad_masks_are_refused(processor, picture, case):
    mask, message = BAD_MASKS[case]
    with pytest.raises(ValueError, match=message):
        processor(abnormal_refs=[picture], masks=[mask])


def test_a_mask_too_few_is_refused(processor, picture):
    with pytest.raises(ValueError, match="masks: expected one for each of 3 entries of abnormal_refs, got 2"):
        processor(abnormal_refs=[picture] * 3, masks=[(1, 1, 5, 5)] * 2)
