"""What the app accepts of uploaded files, and what it says of the others."""

import numpy as np
import pytest
from PIL import Image, ImageColor

from modeling_ideal.app import uploads
from modeling_ideal.app.marks import COLOUR, Boxes, layers_of, painted_mask
from modeling_ideal.app.uploads import read_picture, read_pictures, unique_name

from ..pictures import photograph
from .conftest import SIZE


def test_a_picture_is_read_at_its_own_size(files):
    picture = read_picture(files["good_0"], "good_0.png")
    assert (picture.size, picture.shown.shape, picture.defective) == (SIZE, (*SIZE, 3), None)
    assert np.array_equal(picture.shown, np.asarray(Image.open(files["good_0"])))


def test_of_a_large_picture_a_smaller_one_is_kept_and_its_mask_grows_with_it(tmp_path):
    Image.fromarray(photograph(0, (1500, 2048))).save(tmp_path / "large.jpg")
    picture = read_picture(tmp_path / "large.jpg", "large.jpg")
    assert (picture.size, picture.shown.shape, picture.shown.dtype) == ((1500, 2048), (750, 1024, 3), np.uint8)
    mask = np.zeros((750, 1024), bool)
    mask[10:20, 30:50] = True
    full = picture.marked(mask, " dent ").full_mask()
    assert full.shape == (1500, 2048)
    assert full.sum() == 4 * mask.sum()
    assert full[20:40, 60:100].all()
    assert picture.marked(mask, " dent ").defect_type == "dent"


@pytest.mark.parametrize(
    ("limit", "most", "message"),
    [
        ("MOST_BYTES", 1000, r"good_0.png: expected at most 0 MB, got 0.\d MB"),
        ("MOST_PIXELS", 1000, "good_0.png: expected at most 0 megapixels, got 0.0 megapixels"),
    ],
)
def test_what_is_too_large_is_refused(files, monkeypatch, limit, most, message):
    monkeypatch.setattr(uploads, limit, most)
    with pytest.raises(ValueError, match=message):
        read_picture(files["good_0"], "good_0.png")


def test_what_is_no_picture_is_refused_without_a_path_of_the_server(files, tmp_path):
    with pytest.raises(
        ValueError, match="expected a PNG, JPEG, WebP, BMP or TIFF picture, got another file"
    ) as caught:
        read_picture(files["text"], "text.png")
    assert str(files["text"].parent) not in str(caught.value)
    cut = tmp_path / "cut.png"
    cut.write_bytes(files["good_0"].read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"^cut.png: expected a picture that can be read, got a damaged one$"):
        read_picture(cut, "cut.png")
    moving = tmp_path / "moving.png"
    frames = [Image.fromarray(photograph(seed)) for seed in range(2)]
    frames[0].save(moving, save_all=True, append_images=frames[1:])
    with pytest.raises(ValueError, match=r"^moving.png: .* got one of several frames$"):
        read_picture(moving, "moving.png")


def test_a_file_that_is_refused_does_not_keep_out_the_others(files):
    given = [files["text"], files["good_0"], files["good_0"], files["good_1"], files["good_2"]]
    pictures, refused = read_pictures(given, ["old.png"], most=4, defective=False)
    assert [picture.name for picture in pictures] == ["good_0.png", "good_0 (2).png", "good_1.png"]
    assert refused[0].startswith("text.png: expected")
    assert refused[1:] == ["good_2.png: expected at most 4 pictures, got more"]


def test_names_are_unique():
    assert unique_name("a.png", []) == "a.png"
    assert unique_name("a.png", ["a.png", "a (2).png"]) == "a (3).png"


def layer(size, *places):
    painted = np.zeros((*size, 4), np.uint8)
    for row, column in places:
        painted[row, column] = (225, 29, 72, 255)
    return painted


def test_what_is_painted_is_the_mask():
    drawn = [layer((10, 20), (2, 3), (5, 8)), layer((10, 20), (7, 1))]
    mask = painted_mask(drawn, (10, 20))
    assert sorted(zip(*mask.nonzero(), strict=True)) == [(2, 3), (5, 8), (7, 1)]


def test_paint_on_another_scale_is_brought_to_that_of_the_picture():
    drawn = layer((10, 20))
    drawn[4:6, 10:14] = 255
    mask = painted_mask([drawn], (20, 40))
    assert mask.sum() == 4 * 8
    assert mask[8:12, 20:28].all()


def test_nothing_painted_is_no_mask():
    assert painted_mask(layers_of(None), (4, 4)) is None
    assert painted_mask(layers_of({"background": 1, "layers": [layer((4, 4))]}), (4, 4)) is None


def test_boxes_are_drawn_with_two_clicks_each_in_any_order_of_corners():
    empty = Boxes(np.zeros((10, 20, 3), np.uint8))
    boxes = empty.clicked(8, 5).clicked(3, 2).clicked(15, 9).clicked(99, -4)  # a click beyond the edge is on the edge
    assert boxes.boxes() == [(3, 2, 8, 5), (15, 0, 19, 9)]
    mask = boxes.mask((10, 20))
    assert mask[2:6, 3:9].all()
    assert mask[:, 15:].all()
    assert mask.sum() == 4 * 6 + 10 * 5
    assert boxes.undone().undone().boxes() == [(3, 2, 8, 5)]
    assert boxes.undone().undone().mask((20, 40)).sum() == 4 * mask[:, :15].sum()  # on the scale of the picture
    assert empty.clicked(1, 1).clicked(1, 1).mask((5, 10)).sum() == 1  # not nothing
    assert empty.undone().mask((5, 10)) is None
    with pytest.raises(ValueError, match="expected two corners for each box, got one"):
        boxes.undone().mask((10, 20))


def test_boxes_and_a_first_corner_are_seen_on_the_picture():
    def coloured(boxes):
        rows, columns = (np.asarray(boxes.drawn()) == ImageColor.getrgb(COLOUR)).all(-1).nonzero()
        return (columns.min(), rows.min(), columns.max(), rows.max()) if len(rows) else None

    empty = Boxes(np.zeros((100, 200, 3), np.uint8))
    assert coloured(empty) is None
    assert coloured(empty.clicked(50, 40)) == (41, 31, 59, 49)  # a cross
    assert coloured(empty.clicked(50, 40).clicked(90, 70)) == (50, 40, 90, 70)
    assert not empty.picture.any()
