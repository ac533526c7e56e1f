"""The pictures that a student learns from."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from modeling_ideal.training.distillation.textures import SURFACES, render_texture
from modeling_ideal.training.distillation.views import Views, picture_files, random_crop

SIZE = 48


@pytest.fixture
def files(tmp_path, picture):
    (tmp_path / "deep").mkdir()
    for name in ("b.png", "a.jpg", "deep/c.PNG"):
        picture.rotate(len(name)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    return picture_files([str(tmp_path)])


def test_every_picture_below_the_folders_is_found_once(files, tmp_path):
    assert [file.name for file in files] == ["a.jpg", "b.png", "c.PNG"]
    assert picture_files([str(tmp_path), str(tmp_path / "deep")]) == files


def test_originals_come_first_then_crops_then_textures(files):
    views = Views(files, crops=2, textures=2, size=SIZE, seed=0)
    assert len(views) == len(list(views)) == 7
    with Image.open(files[1]) as original:
        assert np.array_equal(views[1], original.convert("RGB"))
    assert [view.size for view in views] == [(40, 30)] * 3 + [(SIZE, SIZE)] * 4
    assert {view.mode for view in views} == {"RGB"}


def test_a_view_depends_on_its_index_and_seed_alone(files):
    views, again, other = (Views(files, crops=3, textures=3, size=SIZE, seed=seed) for seed in (0, 0, 1))
    made = range(len(files), len(views))
    assert all(np.array_equal(views[index], again[index]) for index in reversed(made))
    assert not any(np.array_equal(views[index], other[index]) for index in made)
    assert len({views[index].tobytes() for index in made}) == len(made)


def test_a_crop_shows_no_more_than_its_picture_and_no_less_than_a_third():
    """A picture whose red is its column and whose blue is its row tells what of it a crop shows."""
    rows, columns = np.mgrid[:100, :100]
    picture = Image.fromarray(np.stack([columns, np.zeros_like(rows), rows], axis=-1).astype(np.uint8) * 2)
    shares = []
    for seed in range(20):
        crop = np.asarray(random_crop(np.random.default_rng(seed), picture, SIZE), float)
        assert crop.shape == (SIZE, SIZE, 3)
        across = sorted(np.ptp(crop, axis=(0, 1)) / 198)[1:]  # colours were changed by factors of 0.6 to 1.4 each
        shares.append(across[0] * across[1])
    assert 0.05 < min(shares) < max(shares) <= 1.7
    assert np.ptp(shares) > 0.2


@pytest.mark.parametrize("surface", SURFACES)
def test_a_surface_uses_its_range_and_is_not_flat(surface):
    values = surface(np.random.default_rng(0), SIZE)
    assert values.shape == (SIZE, SIZE)
    assert values.min() >= 0
    assert values.max() <= 1
    assert values.std() > 0.05


def test_textures_differ():
    pictures = [np.asarray(render_texture(np.random.default_rng(seed), SIZE), float) for seed in range(12)]
    assert all(picture.std(axis=(0, 1)).max() > 1 for picture in pictures)
    assert all(np.abs(one - other).mean() > 5 for one, other in pairwise(pictures))


def test_views_end_where_they_end(files):
    with pytest.raises(IndexError, match="expected a view from 0 to 3, got 4"):
        Views(files, crops=1, textures=0, size=SIZE, seed=0)[4]


def test_folders_without_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"images: expected pictures in .*, got none"):
        picture_files([str(tmp_path)])
    with pytest.raises(ValueError, match=r"images: expected folders of pictures, got '.*nowhere', which is not"):
        picture_files([str(tmp_path / "nowhere")])
