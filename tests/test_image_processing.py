"""IdealImageProcessor: every kind of picture and mask that people have."""

import io
import json
import struct

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from transformers import AutoImageProcessor
from transformers.utils import ModelOutput

from modeling_ideal import IdealImageProcessor
from modeling_ideal.image_inputs import load_image
from modeling_ideal.image_processing_ideal import gaussian_smoothing
from modeling_ideal.masks import load_area

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture
def processor():
    return IdealImageProcessor(size=32, patch_size=4)


@pytest.fixture
def values(picture):
    return np.asarray(picture)


def pixels(processor, image):
    """What the processor makes of one image, back in 0..1: (H, W, 3)."""
    return processor(query=image)["query"][0].permute(1, 2, 0).numpy() * STD + MEAN


def test_shapes_of_everything(processor, picture):
    inputs = processor(query=[picture] * 3, normal_refs=[picture] * 2, abnormal_refs=[picture], masks=[(1, 2, 9, 9)])
    shapes = {name: tuple(value.shape) for name, value in inputs.items()}
    assert shapes == {
        "query": (3, 3, 32, 32),
        "normal_refs": (2, 3, 32, 32),
        "abnormal_refs": (1, 3, 32, 32),
        "masks": (1, 32, 32),
    }
    assert inputs["query"].dtype == torch.float32
    assert inputs["masks"].dtype == torch.bool


def test_one_list_of_references_for_each_query(processor, picture):
    inputs = processor(
        query=[picture] * 2,
        normal_refs=[[picture] * 3] * 2,
        abnormal_refs=[[picture] * 2] * 2,
        masks=[[(1, 2, 9, 9), (3, 3, 5, 5)]] * 2,
    )
    assert inputs["normal_refs"].shape == (2, 3, 3, 32, 32)
    assert inputs["abnormal_refs"].shape == (2, 2, 3, 32, 32)
    assert inputs["masks"].shape == (2, 2, 32, 32)


def test_values_are_those_of_pillow(processor, picture):
    expected = np.asarray(picture.resize((32, 32), Image.Resampling.BICUBIC)) / 255
    np.testing.assert_allclose(pixels(processor, picture), expected, atol=1e-6)


def test_every_kind_of_input_gives_the_same(processor, picture, values, tmp_path):
    picture.save(tmp_path / "part.png")
    chw = np.moveaxis(values, -1, 0)
    kinds = {
        "path": tmp_path / "part.png",
        "string": str(tmp_path / "part.png"),
        "array": values,
        "array, channels first": chw,
        "tensor": torch.from_numpy(chw.copy()),
        "tensor, channels last": torch.from_numpy(values.copy()),
        "float 0..1": values / 255,
        "float 0..255": values.astype(np.float64),
        "float16": (values / 255).astype(np.float16),
        "bfloat16 tensor": torch.from_numpy(values / 255).to(torch.bfloat16),
        "int64": values.astype(np.int64),
        "RGBA": Image.fromarray(np.dstack([values, np.full(values.shape[:2], 255, np.uint8)])),
        "16-bit array": values.astype(np.uint16) * 257,
    }
    expected = pixels(processor, picture)
    for name, image in kinds.items():
        loose = 0.02 if "16" in name and "bit" not in name else 0.005
        np.testing.assert_allclose(pixels(processor, image), expected, atol=loose, err_msg=name)


def test_grey_pictures(processor, values, tmp_path):
    grey = values[..., 0]
    expected = pixels(processor, np.dstack([grey] * 3))
    sixteen = tmp_path / "deep.png"
    Image.fromarray(grey.astype(np.uint16) * 257).save(sixteen)
    assert Image.open(sixteen).mode.startswith("I")
    kinds = {
        "L": Image.fromarray(grey),
        "array": grey,
        "one channel last": grey[..., None],
        "one channel first": grey[None],
        "palette": Image.fromarray(grey).convert("P"),
        "16-bit file": sixteen,
        "32-bit integers of 16 bits": Image.fromarray(grey.astype(np.int32) * 257),
        "float picture": Image.fromarray(grey.astype(np.float32) / 255),
    }
    for name, image in kinds.items():
        np.testing.assert_allclose(pixels(processor, image), expected, atol=0.005, err_msg=name)


def big_endian_tiff(values):
    """An uncompressed grey TIFF file of 16-bit values (H, W), most significant byte first."""
    height, width = values.shape
    data = values.astype(">u2").tobytes()
    short = {256: width, 257: height, 258: 16, 259: 1, 262: 1, 277: 1, 278: height}
    entries = {**{tag: struct.pack(">HIHH", 3, 1, value, 0) for tag, value in short.items()}}
    entries |= {273: struct.pack(">HII", 4, 1, 8), 279: struct.pack(">HII", 4, 1, len(data))}
    table = b"".join(struct.pack(">H", tag) + entries[tag] for tag in sorted(entries))
    return b"MM" + struct.pack(">HI", 42, 8 + len(data)) + data + struct.pack(">H", len(entries)) + table + bytes(4)


def test_big_endian_values(values):
    deep = values[..., 0].astype(np.uint16) * 256 + values[..., 1]
    expected = load_image(deep, "query")
    opened = Image.open(io.BytesIO(big_endian_tiff(deep)))
    assert opened.mode == "I;16B"
    for image in (opened, big_endian_tiff(deep), deep.astype(">u2"), deep.astype(">f8") / 65535):
        np.testing.assert_allclose(load_image(image, "query"), expected, atol=1e-6)
    np.testing.assert_array_equal(load_area(big_endian_tiff(deep * (deep > 30000)), deep.shape, "mask"), deep > 30000)


def test_sixteen_bits_keep_their_precision():
    deep = np.array([[1000, 1001], [1002, 1003]], np.uint16)
    assert len(np.unique(load_image(deep, "query"))) == 4


def test_palette_colours_are_looked_up(processor, picture):
    palette = picture.quantize(16)
    np.testing.assert_allclose(pixels(processor, palette), pixels(processor, palette.convert("RGB")), atol=1e-6)


def test_exif_orientation(processor, picture, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    picture.save(tmp_path / "turned.png", exif=exif)
    upright = picture.transpose(Image.Transpose.ROTATE_270)
    np.testing.assert_allclose(pixels(processor, tmp_path / "turned.png"), pixels(processor, upright), atol=1e-6)
    mask = np.zeros((40, 30))
    mask[3, 3] = 1  # of the upright picture's size
    processor(abnormal_refs=[tmp_path / "turned.png"], masks=[mask])


@pytest.mark.parametrize(
    ("size", "expected"),
    [((100, 100), (32, 32)), ((50, 200), (16, 64)), ((7, 3000), (4, 664)), ((300, 100), (56, 20))],
)
def test_keeping_the_aspect(size, expected):
    processor = IdealImageProcessor(size=32, patch_size=4, keep_aspect_ratio=True)
    image = np.zeros((*size, 3), np.uint8)
    mask = np.ones(size, bool)
    inputs = processor(query=image, abnormal_refs=[image], masks=[mask])
    assert tuple(inputs["query"].shape[-2:]) == tuple(inputs["masks"].shape[-2:]) == expected


def test_pictures_of_different_aspect_do_not_make_a_batch(picture):
    processor = IdealImageProcessor(size=32, patch_size=4, keep_aspect_ratio=True)
    with pytest.raises(
        ValueError, match=r"query: expected images that are resized to one size, got \[\(3, 28, 36\), "
    ):
        processor(query=[picture, picture.rotate(90, expand=True)])


BAD_INPUT = {
    "empty list": ({"query": []}, "query: expected at least one image, got an empty list"),
    "no references": ({"normal_refs": []}, "normal_refs: expected at least one image, got an empty list"),
    "two channels": ({"query": np.zeros((5, 6, 2))}, r"query\[0\]: expected an array .* got shape \(5, 6, 2\)"),
    "one dimension": ({"query": [np.zeros(5)]}, r"query\[0\]: expected an array .* got shape \(5,\)"),
    "no pixels": ({"query": [np.zeros((0, 5), np.uint8)]}, r"query\[0\]: expected at least one pixel"),
    "no real numbers": ({"query": np.full((5, 5), 1j)}, r"query\[0\]: expected an array of .* got complex128"),
    "NaN": ({"query": np.full((5, 5), np.nan)}, r"query\[0\]: expected finite values, got NaN"),
    "normalised already": (
        {"query": np.array([[-2.1, 2.0]])},
        r"expected float values in 0..1 or 0..255, got -2.1..2;",
    ),
    "large floats": ({"query": np.array([[0, 4095.0]])}, r"expected float values in 0..1 or 0..255, got 0..4095"),
    "large integers": ({"query": np.array([[0, 4095]])}, r"expected int64 values in 0..255, or uint16, got 0..4095"),
    "a number": ({"query": [3]}, r"query\[0\]: expected a path, bytes, .* got int"),
    "a missing file": (
        {"query": "no_such_part.png"},
        r"query\[0\]: no_such_part.png: expected a readable image, got FileNotFoundError",
    ),
    "masks alone": ({"masks": [(1, 1, 3, 3)]}, "masks: expected abnormal_refs with them, got none"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_pictures_are_refused(processor, case):
    arguments, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        processor(**arguments)


def test_a_truncated_file_is_refused(processor, picture, tmp_path):
    picture.save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"normal_refs\[1\]: .*cut.jpg: expected a readable image, got "):
        processor(normal_refs=[tmp_path / "whole.jpg", tmp_path / "cut.jpg"])


def test_out_of_range_32_bit_pictures_are_refused(processor):
    with pytest.raises(ValueError, match=r"expected 16-bit values in 0..65535, got 0..70000"):
        processor(query=Image.fromarray(np.array([[0, 70000]], np.int32)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sice": 3}, r"expected settings among \['image_mean', .* got unknown \['sice'\]"),
        ({"size": 450}, r"size: expected multiples of patch_size 14, got \(450, 450\)"),
        ({"patch_size": 0}, r"size: expected multiples of patch_size 0"),
        ({"size": {"height": 448.0, "width": 448}}, r"size: expected multiples of patch_size 14, got \(448.0, 448\)"),
        ({"image_std": [0.2, 0, 0.2]}, r"image_std: expected three numbers > 0, got .*0.2, 0, 0.2"),
        ({"image_mean": [float("nan")] * 3}, "image_mean: expected three finite numbers, got .*nan, nan, nan"),
        ({"image_mean": 0.5}, "image_mean: expected three finite numbers, got 0.5"),
        ({"image_mean": "grey"}, "image_mean: expected three finite numbers, got 'grey'"),
        ({"image_std": [0.2, 0.2]}, "image_std: expected three numbers > 0, got .*0.2, 0.2"),
        ({"keep_aspect_ratio": "yes"}, "keep_aspect_ratio: expected True or False, got 'yes'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        IdealImageProcessor(**settings)


def test_save_and_load(processor, picture, tmp_path):
    processor.save_pretrained(tmp_path)
    loaded = IdealImageProcessor.from_pretrained(tmp_path)
    assert loaded.to_dict() == processor.to_dict()
    assert torch.equal(loaded(query=picture)["query"], processor(query=picture)["query"])
    automatic = AutoImageProcessor.from_pretrained(tmp_path)
    assert type(automatic) is IdealImageProcessor
    assert IdealImageProcessor.from_pretrained(tmp_path, keep_aspect_ratio=True).keep_aspect_ratio


def test_numpy_tensors(processor, picture):
    assert isinstance(processor(query=picture, return_tensors="np")["query"], np.ndarray)


def test_maps_come_back_at_each_images_size(processor):
    maps = torch.rand(3, 32, 32)
    out = ModelOutput(anomaly_maps=maps)
    sizes = [(30, 40), (100, 7), (32, 32)]
    back = processor.post_process_anomaly_detection(out, target_sizes=sizes, smoothing=0)
    assert [tuple(part.shape) for part in back] == sizes
    assert torch.equal(back[2], maps[2])
    for given in (torch.tensor(sizes), np.array(sizes)):
        again = processor.post_process_anomaly_detection(out, target_sizes=given, smoothing=0)
        assert all(torch.equal(a, b) for a, b in zip(again, back, strict=True))
    same = processor.post_process_anomaly_detection(out, smoothing=0)
    assert all(torch.equal(a, b) for a, b in zip(same, maps, strict=True))


@pytest.mark.parametrize("sigma", [0.5, 4.0, 20.0])
def test_smoothing_is_scipys(sigma, processor):
    maps = torch.rand(2, 32, 40, dtype=torch.float64)
    expected = np.stack([gaussian_filter(part, sigma, mode="nearest", truncate=4.0) for part in maps.numpy()])
    np.testing.assert_allclose(gaussian_smoothing(maps, sigma), expected, atol=1e-9)
    out = ModelOutput(anomaly_maps=maps)
    np.testing.assert_allclose(
        torch.stack(processor.post_process_anomaly_detection(out, smoothing=sigma)), expected, atol=1e-9
    )


@pytest.mark.parametrize("smoothing", [-1, float("nan"), float("inf")])
def test_bad_smoothing_is_refused(processor, smoothing):
    with pytest.raises(ValueError, match=r"smoothing: expected a number in 0\.\.512"):
        processor.post_process_anomaly_detection(ModelOutput(anomaly_maps=torch.rand(1, 8, 8)), smoothing=smoothing)


@pytest.mark.parametrize("size", [(0, 5), (-1, 5), (5.5, 5), (5,), 5])
def test_a_size_that_is_none_is_refused(processor, size):
    with pytest.raises(ValueError, match="target_sizes: expected a height and a width >= 1 for each map, got"):
        processor.post_process_anomaly_detection(ModelOutput(anomaly_maps=torch.rand(1, 8, 8)), target_sizes=[size])


def test_a_size_too_few_is_refused(processor):
    with pytest.raises(ValueError, match="target_sizes: expected one for each of 2 maps, got 1"):
        processor.post_process_anomaly_detection(ModelOutput(anomaly_maps=torch.rand(2, 8, 8)), target_sizes=[(8, 8)])


def test_a_file_may_hold_settings_that_this_version_does_not_know(tmp_path):
    IdealImageProcessor(size=32, patch_size=4).save_pretrained(tmp_path)
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "written_by_a_newer_version": 7}))
    for load in (IdealImageProcessor.from_pretrained, AutoImageProcessor.from_pretrained):
        assert load(tmp_path).size == {"height": 32, "width": 32}
