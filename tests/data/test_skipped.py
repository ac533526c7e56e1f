"""Images that Pillow cannot open are named, never skipped without a word."""

import logging

import pytest

from modeling_ideal.data import load_records
from modeling_ideal.data.check import check
from modeling_ideal.data.images import image_extensions, is_unreadable_image, skipped_images
from modeling_ideal.detection.files import find_images

from .miniatures import mask, picture


@pytest.fixture(autouse=True)
def plain_pillow(monkeypatch):
    """A Pillow without plug-ins for these formats, wherever the tests run."""
    known = image_extensions() - {".heic", ".heif", ".nef"}
    monkeypatch.setattr("modeling_ideal.data.images.image_extensions", lambda: known)


def own_folder(root):
    picture(root / "normal/1.png")
    picture(root / "abnormal/2.png")
    mask(root / "masks/2.png", {(0, 0): 1})
    return root


@pytest.mark.parametrize("place", ["normal/3.heic", "abnormal/dent/3.HEIC", "masks/3.heic", "3.heic", "new/3.heif"])
def test_a_skipped_picture_is_reported(tmp_path, caplog, place):
    file = own_folder(tmp_path) / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"ftypheic")
    [problem] = check(tmp_path, progress=False).problems
    assert (problem.kind, problem.path) == ("left out", place)
    assert "Pillow" in problem.message
    with caplog.at_level(logging.WARNING):
        assert len(load_records(tmp_path)) == 2
    assert place in caplog.text


def test_other_files_are_none_of_our_business(tmp_path):
    (own_folder(tmp_path) / "notes.txt").write_text("bought in May")
    assert check(tmp_path, progress=False).problems == ()


def test_a_folder_of_skipped_pictures_says_so(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.heic").write_bytes(b"ftypheic")
    with pytest.raises(
        ValueError, match=r"no layout recognised; .* 2 images skipped \(a\.heic, \.\.\.\): Pillow opens"
    ):
        load_records(tmp_path)


def test_a_sentence_on_what_is_skipped():
    assert skipped_images(["a.png", "notes.txt"]) is None
    assert skipped_images(["a.png", "b.HEIC"]) == (
        "1 image skipped (b.HEIC): Pillow opens no .heic files here; convert them to PNG"
    )
    assert skipped_images(["b.heic", "c.nef"]) == (
        "2 images skipped (b.heic, ...): Pillow opens no .heic, .nef files here; convert them to PNG"
    )
    assert not is_unreadable_image("a.jpg")


def test_the_command_line_names_them(tmp_path, capsys):
    (tmp_path / "a.heic").write_bytes(b"ftypheic")
    with pytest.raises(ValueError, match=r"expected a folder of images, got none .*1 image skipped \(a.heic\)"):
        find_images([str(tmp_path)])
    picture(tmp_path / "b.png")
    assert find_images([str(tmp_path)]) == [tmp_path / "b.png"]
    assert "ideal: IMAGES: 1 image skipped (a.heic): Pillow opens no .heic files here" in capsys.readouterr().err
