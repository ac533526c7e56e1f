"""Masks of abnormal references, in every form that people have."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from modeling_ideal import IdealImageProcessor
from modeling_ideal.data import load_records
from modeling_ideal.data.images import read_masks
from modeling_ideal.image_inputs import upright
from modeling_ideal.training.encoder import BackboneEncoder

SHAPE = np.zeros((30, 40), bool)
SHAPE[5:12, 10:25] = True
NOTHING = np.zeros((30, 40), bool)


@pytest.fixture
def processor():
    return IdealImageProcessor(size=32, patch_size=4)


def unresized():
    """A processor for the picture's own size."""
    return IdealImageProcessor(size={"height": 30, "width": 40}, patch_size=2)


def mask_of(processor, picture, mask):
    return processor(abnormal_refs=[picture], masks=[mask])["masks"][0].numpy()


def test_masks_in_every_form(picture, tmp_path):
    processor = unresized()
    expected = SHAPE
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
        "transparent white array": layers(255, 255, 255, SHAPE * 255),
        "RGBA tensor": torch.from_numpy(np.moveaxis(layers(255, 255, 255, SHAPE * 255), -1, 0).copy()),
        "array (4, H, W)": np.moveaxis(layers(255, 255, 255, SHAPE * 255), -1, 0),
        "array (H, W, 1)": expected[..., None],
        "16 bits": expected.astype(np.uint16) * 40_000,
        "negative": -expected.astype(np.int32),
        "bfloat16": torch.from_numpy(expected).bfloat16(),
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


def layers(*channels):
    """(30, 40, c) uint8 of channels (30, 40), or of single values."""
    return np.dstack([np.broadcast_to(channel, SHAPE.shape) for channel in channels]).astype(np.uint8)


def palette(indices, colours):
    image = Image.fromarray(indices.astype(np.uint8))
    image.putpalette(colours)
    return image


def with_alpha(image, visible):
    """A palette image that is opaque where `visible` and transparent elsewhere."""
    image.putalpha(Image.fromarray(visible).convert("L"))
    return image


def big_endian(marked):
    """A 16-bit image in the byte order of other machines."""
    return Image.frombytes("I;16B", marked.shape[::-1], (marked * 300).astype(">u2").tobytes())


NOISE = np.random.default_rng(0).integers(0, 30, SHAPE.shape, dtype=np.uint8)
WHITE, RED, BLACK = [255] * 3, [255, 0, 0], [0] * 3
UPSIDE_DOWN = Image.Exif()
UPSIDE_DOWN[0x0112] = 3

# Name of the file, image, options of `save`, and what it marks.
MASK_FILES = {
    "one bit": ("a.png", Image.fromarray(SHAPE), {}, SHAPE),
    "grey": ("a.bmp", Image.fromarray(SHAPE.astype(np.uint8)), {}, SHAPE),
    "several values": ("a.png", Image.fromarray(SHAPE * np.arange(1, 41, dtype=np.uint8)), {}, SHAPE),
    "RGB, blue only": ("a.png", Image.fromarray(layers(0, 0, SHAPE * 9)), {}, SHAPE),
    "RGBA on transparent white": ("a.png", Image.fromarray(layers(255, 255, 255, SHAPE * 255)), {}, SHAPE),
    "RGBA, hardly visible": ("a.png", Image.fromarray(layers(255, 0, 0, SHAPE * 1)), {}, SHAPE),
    "RGBA, opaque black around": ("a.png", Image.fromarray(layers(SHAPE * 255, 0, 0, 255)), {}, SHAPE),
    "RGBA, all transparent": ("a.png", Image.fromarray(layers(255, 255, 255, 0)), {}, NOTHING),
    "LA": ("a.png", Image.fromarray(layers(255, SHAPE * 255)), {}, SHAPE),
    "LA, all transparent": ("a.png", Image.fromarray(layers(255, 0)), {}, NOTHING),
    "PA": ("a.tif", with_alpha(palette(SHAPE * 0, WHITE), SHAPE), {}, SHAPE),
    "palette": ("a.png", palette(SHAPE, BLACK + RED), {}, SHAPE),
    "palette, black second": ("a.png", palette(~SHAPE, WHITE + BLACK), {}, SHAPE),
    "palette, transparent white": ("a.png", palette(SHAPE, WHITE + RED), {"transparency": 0}, SHAPE),
    "palette, all black": ("a.png", palette(SHAPE * 3, BLACK * 4), {}, SHAPE),
    "palette, all black, one index": ("a.png", palette(np.full(SHAPE.shape, 3), BLACK * 4), {}, NOTHING),
    "CMYK": ("a.tif", Image.frombytes("CMYK", (40, 30), layers(0, 0, 0, ~SHAPE * 255).tobytes()), {}, SHAPE),
    "16 bits": ("a.png", Image.fromarray(SHAPE.astype(np.uint16)), {}, SHAPE),
    "32 bits": ("a.tif", Image.fromarray(SHAPE.astype(np.int32) * 70_000), {}, SHAPE),
    "float": ("a.tif", Image.fromarray(SHAPE.astype(np.float32) / 1000), {}, SHAPE),
    "16 bits, big-endian": ("a.tif", big_endian(SHAPE), {}, SHAPE),
    "JPEG with noise": ("a.jpg", Image.fromarray(NOISE + SHAPE.astype(np.uint8) * 200), {"quality": 30}, SHAPE),
    "lossy WebP": ("a.webp", Image.fromarray(SHAPE.astype(np.uint8) * 255), {"quality": 50}, SHAPE),
    "JPEG": ("a.jpg", Image.fromarray(SHAPE.astype(np.uint8) * 255), {"quality": 95}, SHAPE),
    "EXIF": ("a.png", Image.fromarray(SHAPE[::-1, ::-1]), {"exif": UPSIDE_DOWN}, SHAPE),
}


@pytest.mark.parametrize("case", MASK_FILES)
def test_a_mask_file_marks_the_same_for_every_reader(picture, tmp_path, case):
    name, image, options, expected = MASK_FILES[case]
    path = tmp_path / name
    image.save(path, **options)
    content = path.read_bytes()
    np.testing.assert_array_equal(read_masks([path], (40, 30)), expected)
    encoder = BackboneEncoder(None, unresized())
    if case != "EXIF":  # records hold upright pictures
        np.testing.assert_array_equal(encoder.prepare_mask(Image.open(path)), expected)
    # A path, as from `ideal references --masks`; an image from memory and bytes, as from a request to the endpoint.
    for mask in (path, str(path), Image.open(path), content, BytesIO(content), Image.open(BytesIO(content))):
        if expected.any():
            np.testing.assert_array_equal(mask_of(unresized(), picture, mask), expected)
        else:
            with pytest.raises(
                ValueError, match=r"masks\[0\]: (.*: )?expected at least one anomalous \(non-zero\) pixel"
            ):
                mask_of(unresized(), picture, mask)


def test_the_records_of_a_data_set_hold_the_same_marks(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    expected = {}
    for number, (name, image, options, marked) in enumerate(MASK_FILES.values()):
        path = tmp_path / "parts" / "masks" / f"{number}{Path(name).suffix}"
        for kind in ("normal", "abnormal", "masks"):
            (tmp_path / "parts" / kind).mkdir(parents=True, exist_ok=True)
        image.save(path, **options)
        Image.new("RGB", (40, 30)).save(tmp_path / "parts" / "abnormal" / f"{number}.png")
        expected[f"abnormal/{number}.png"] = marked
    records = load_records(tmp_path / "parts")
    assert len(records) == len(expected)
    for record in records:
        np.testing.assert_array_equal(np.asarray(record["mask"]) == 255, expected[record["path"]])


@pytest.mark.parametrize("name", ["a.gif", "a.tif", "a.png", "a.webp"])
def test_a_mask_of_several_frames_is_refused(picture, tmp_path, name):
    frames = [Image.fromarray(part.astype(np.uint8) * 255) for part in (SHAPE, ~SHAPE)]
    path = tmp_path / name
    frames[0].save(path, save_all=True, append_images=frames[1:])
    message = r"expected a mask of one frame, got a (GIF|TIFF|PNG|WEBP) file of several"
    with pytest.raises(ValueError, match=message):
        read_masks([path], (40, 30))
    for mask in (path, Image.open(path), path.read_bytes(), upright(Image.open(path))):
        with pytest.raises(ValueError, match=r"masks\[0\]: (.*: )?" + message):
            mask_of(unresized(), picture, mask)
    frames[0].save(path, save_all=True)
    np.testing.assert_array_equal(mask_of(unresized(), picture, path), SHAPE)


def test_a_mask_file_with_nan_is_refused(picture, tmp_path):
    values = SHAPE.astype(np.float32)
    values[0, 0] = np.nan
    Image.fromarray(values).save(tmp_path / "nan.tif")
    with pytest.raises(ValueError, match=r"nan\.tif: expected finite values, got NaN or infinity"):
        read_masks([tmp_path / "nan.tif"], (40, 30))
    with pytest.raises(ValueError, match=r"masks\[0\]: .*: expected finite values, got NaN or infinity"):
        mask_of(unresized(), picture, tmp_path / "nan.tif")


CHANNELS = r"masks\[0\]: expected an array \(H, W\), .* with 1, 3 or 4 channels, got shape "

BAD_MASKS = {
    "empty": (
        np.zeros((30, 40)),
        r"masks\[0\]: expected at least one anomalous \(non-zero\) pixel, got none among 1200",
    ),
    "another size": (np.ones((40, 30)), r"masks\[0\]: expected .* height and width \(30, 40\), got \(40, 30\)"),
    "NaN": (np.full((30, 40), np.nan), r"masks\[0\]: expected finite values"),
    "infinite tensor": (torch.full((1, 30, 40), torch.inf), r"masks\[0\]: expected finite values"),
    "two channels": (np.ones((30, 40, 2)), CHANNELS + r"\(30, 40, 2\)"),
    "five channels": (np.ones((30, 40, 5)), CHANNELS + r"\(30, 40, 5\)"),
    "a stack": (torch.ones(1, 1, 30, 40), CHANNELS + r"\(1, 1, 30, 40\)"),
    "transparent array": (
        np.dstack([np.full((30, 40, 3), 255), np.zeros((30, 40))]),
        r"masks\[0\]: expected at least one anomalous",
    ),
    "broken file": (__file__, r"masks\[0\]: .*test_masks\.py: expected a readable image, got UnidentifiedImageError"),
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
