"""The pictures of packages: those of a useful size, each once."""

import io

import numpy as np
import pytest
from PIL import Image

from hub.free_pictures import collect


def png(seed, width, height):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_pictures_of_a_useful_size_are_kept_once(tmp_path):
    useful, other = png(0, 224, 300), png(1, 300, 224)
    files = {
        "usr/a.png": useful,
        "usr/share/again.png": useful,
        "usr/c.PNG": other,
        "usr/icon.png": png(2, 223, 300),
        "usr/panorama.png": png(3, 4097, 224),
        "usr/text.txt": b"text",
        "usr/broken.png": b"no picture",
    }
    for path, content in files.items():
        for packages in ("packages", "elsewhere/first"):
            (tmp_path / packages / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / packages / path).write_bytes(content)
    out = tmp_path / "out"
    assert collect(tmp_path / "packages", out) == 2
    assert sorted(file.read_bytes() for file in out.iterdir()) == sorted([useful, other])
    assert {file.suffix for file in out.iterdir()} == {".png"}
    collect(tmp_path / "elsewhere", tmp_path / "same")
    assert names(tmp_path / "same") == names(out)  # wherever they come from
    with pytest.raises(ValueError, match=r"expected a new folder, got .*out"):
        collect(tmp_path / "packages", out)
    assert names(tmp_path) == ["elsewhere", "out", "packages", "same"]


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder of unpacked packages, got .*nowhere"):
        collect(tmp_path / "nowhere", tmp_path / "out")
