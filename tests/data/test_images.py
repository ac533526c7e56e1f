"""Image files of a data set: sizes, content, unions of masks. What a mask file marks is in tests/test_masks.py."""

import numpy as np
import pytest
from PIL import Image

from modeling_ideal.data.images import content_hash, image_size, is_image_file, read_masks
from modeling_ideal.image_inputs import open_image


def test_the_noise_of_a_jpeg_is_no_anomaly(tmp_path):
    square = np.zeros((32, 32), dtype=bool)
    square[5:15, 9:19] = True
    Image.fromarray(square.astype(np.uint8) * 255).save(tmp_path / "mask.jpg", quality=60)
    stored = np.asarray(Image.open(tmp_path / "mask.jpg"))
    assert (stored[~square] > 0).any(), "the case is only interesting with noise outside the square"
    np.testing.assert_array_equal(read_masks([tmp_path / "mask.jpg"], (32, 32)), square)


def test_several_masks_are_united(tmp_path):
    for name, at in (("a", (0, 0)), ("b", (1, 2))):
        pixels = np.zeros((2, 3), dtype=np.uint8)
        pixels[at] = 255
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    union = read_masks([tmp_path / "a.png", tmp_path / "b.png"], (3, 2))
    np.testing.assert_array_equal(union, [[True, False, False], [False, False, True]])


def test_the_same_picture_has_the_same_content_in_every_lossless_format(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7), dtype=np.uint8)
    grey = Image.fromarray(pixels)
    hashes = {content_hash(grey), content_hash(grey.convert("RGB")), content_hash(grey.convert("P"))}
    for suffix in ("png", "bmp", "tif"):
        grey.convert("RGB").save(tmp_path / f"image.{suffix}")
        hashes.add(content_hash(open_image(tmp_path / f"image.{suffix}")))
    assert len(hashes) == 1
    assert content_hash(grey.rotate(180)) not in hashes
    assert content_hash(Image.fromarray(pixels.reshape(7, 9))) not in hashes


def test_pictures_of_sixteen_bits_that_look_alike_in_eight_differ():
    bright = np.full((2, 2), 40_000, dtype=np.uint16)
    brighter = np.full((2, 2), 40_001, dtype=np.uint16)
    assert content_hash(Image.fromarray(bright)) != content_hash(Image.fromarray(brighter))


def test_a_picture_is_upright_by_its_exif_tag(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10)).save(tmp_path / "phone.jpg", exif=exif)
    assert image_size(tmp_path / "phone.jpg") == (10, 20)
    assert open_image(tmp_path / "phone.jpg").size == (10, 20)


@pytest.mark.parametrize("read", [open_image, image_size])
def test_what_is_no_image_is_named(tmp_path, read):
    (tmp_path / "broken.png").write_bytes(b"no image at all")
    with pytest.raises(ValueError, match=r"broken\.png: expected a readable image, got UnidentifiedImageError"):
        read(tmp_path / "broken.png")


def test_a_truncated_image_is_named(tmp_path):
    Image.effect_noise((64, 64), 50).save(tmp_path / "cut.jpg")
    content = (tmp_path / "cut.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[:-100])
    with pytest.raises(ValueError, match=r"cut\.jpg: expected a readable image, got OSError: .*truncated"):
        open_image(tmp_path / "cut.jpg")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.JPG", True), ("b.Tiff", True), ("c.webp", True), ("d.txt", False), ("e", False), ("f.csv", False)],
)
def test_an_image_is_known_by_its_extension(name, expected):
    assert is_image_file(name) is expected
