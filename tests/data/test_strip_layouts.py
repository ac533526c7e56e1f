"""AITEX: strips of fabric, read as tiles."""

import pytest

from modeling_ideal.data import load_records
from modeling_ideal.data.layouts import scan

from .miniatures import MINIATURES, mask, picture


def test_a_defective_strip_without_mask_is_left_out_and_said(tmp_path, caplog):
    MINIATURES["aitex"](tmp_path)
    mask(tmp_path / "Mask_images/0001_002_00_mask1.png", {}, (768, 256))
    mask(tmp_path / "Mask_images/0001_002_00_mask2.png", {}, (768, 256))
    records = load_records(tmp_path)
    assert set(records["anomaly_type"]) == {"good"}
    for strip in ("0001_002_00.png", "0100_025_08.png"):
        assert f"{strip} shows a defect but its mask is missing or empty" in caplog.text


def test_a_strip_that_is_no_multiple_of_the_tile_is_covered(tmp_path):
    picture(tmp_path / "NODefect_images/f/0001_000_01.png", (300, 260))
    boxes = [entry.box for entry in scan(tmp_path).entries]
    assert sorted(boxes) == [(0, 0, 256, 256), (0, 256, 256, 260), (256, 0, 300, 256), (256, 256, 300, 260)]


def test_a_corrupt_strip_is_named(tmp_path):
    MINIATURES["aitex"](tmp_path)
    (tmp_path / "Defect_images/0001_002_00.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"0001_002_00.png: expected a readable image"):
        load_records(tmp_path)
