"""Image files of several frames: no verdict is on the first alone without a word."""

import io

import numpy as np
import pytest
from PIL import Image

from modeling_ideal.image_inputs import load_image


@pytest.mark.parametrize("name", ["a.gif", "a.tif", "a.png", "a.webp"])
def test_a_file_of_several_frames_is_refused(picture, tmp_path, name):
    path = tmp_path / name
    picture.save(path, save_all=True, append_images=[picture.rotate(180)])
    message = r"expected an image of one frame, got a (GIF|TIFF|PNG|WEBP) file of several"
    for image in (path, path.read_bytes(), io.BytesIO(path.read_bytes())):
        with pytest.raises(ValueError, match=message):
            load_image(image, "image")
    opened = Image.open(path)
    opened.seek(1)  # the user's choice
    assert np.abs(load_image(opened, "image").astype(int) - np.asarray(picture.rotate(180), int)).mean() < 20


def test_a_smaller_frame_is_a_preview(picture, tmp_path):
    picture.save(tmp_path / "a.tif", save_all=True, append_images=[picture.resize((8, 6))])
    np.testing.assert_array_equal(load_image(tmp_path / "a.tif", "image"), np.asarray(picture))
    picture.resize((8, 6)).save(tmp_path / "b.tif", save_all=True, append_images=[picture])
    with pytest.raises(ValueError, match="got a TIFF file of several"):
        load_image(tmp_path / "b.tif", "image")
