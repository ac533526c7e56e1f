"""Each layout is read to the exact records; whatever is wrong or left out is said."""

import json
import logging
import re

import numpy as np
import pytest

from modeling_ideal.data import load_records
from modeling_ideal.data.folder import list_folder
from modeling_ideal.data.layouts import LAYOUTS, scan

from .miniatures import MINIATURES, Expected, mask, mvtec, picture


def observed(record):
    """A record in the form of the expected ones."""
    marked = None
    if record["mask"] is not None:
        assert record["mask"].mode == "L"
        assert record["mask"].size == record["image"].size
        values = np.asarray(record["mask"])
        assert set(np.unique(values)) <= {0, 255}
        marked = tuple((int(x), int(y)) for y, x in np.argwhere(values))
    size = record["image"].size
    fields = ("path", "label", "category", "anomaly_type", "split")
    return Expected(*(record[field] for field in fields), marked, size)


@pytest.mark.parametrize("name", MINIATURES)
@pytest.mark.parametrize("recognised", [True, False], ids=["auto", "named"])
def test_a_miniature_of_each_layout_gives_the_exact_records(tmp_path, name, recognised):
    root = tmp_path / "data"
    expected = MINIATURES[name](root)
    layout = "folder" if name == "metadata" else name
    records = load_records(root, "auto" if recognised else layout)
    assert [observed(record) for record in records] == expected
    assert records.column_names == ["image", "mask", "label", "category", "anomaly_type", "split", "path"]


def test_every_layout_has_a_miniature():
    assert set(LAYOUTS) == set(MINIATURES) - {"metadata"}


@pytest.mark.parametrize("name", MINIATURES)
def test_auto_says_which_layout_it_took(tmp_path, caplog, name):
    MINIATURES[name](tmp_path / "data")
    with caplog.at_level(logging.INFO):
        load_records(tmp_path / "data")
    layout = "folder" if name == "metadata" else name
    assert f"recognised the layout '{layout}'" in caplog.text


@pytest.mark.parametrize(
    ("name", "category", "paths"),
    [
        ("mvtec", "bottle", 5),
        ("btad", "01", 3),
        ("bmad", "Liver", 3),
    ],
)
def test_the_root_may_be_one_category(tmp_path, name, category, paths):
    MINIATURES[name](tmp_path)
    scanned = scan(tmp_path / category)
    assert scanned.layout == name
    assert {entry.category for entry in scanned.entries} == {category}
    assert len(scanned.entries) == paths


def test_a_folder_of_own_products_has_a_category_each(tmp_path):
    for product in ("lid", "cup"):
        picture(tmp_path / product / "Normal/a.png")
        picture(tmp_path / product / "abnormal/dent/a.png")
        mask(tmp_path / product / "masks/dent/a.png", {(0, 0): 1})
    entries = scan(tmp_path).entries
    assert [(entry.category, entry.anomaly_type, len(entry.masks)) for entry in entries] == [
        ("cup", "good", 0),
        ("cup", "dent", 1),
        ("lid", "good", 0),
        ("lid", "dent", 1),
    ]


def test_a_folder_named_good_under_abnormal_stays_abnormal(tmp_path):
    picture(tmp_path / "normal/a.png")
    picture(tmp_path / "abnormal/good/b.png")
    assert [(e.file, e.label) for e in scan(tmp_path).entries] == [("abnormal/good/b.png", 1), ("normal/a.png", 0)]


def test_metadata_as_csv_gives_the_same_entries(tmp_path):
    picture(tmp_path / "1.png")
    picture(tmp_path / "2.png")
    mask(tmp_path / "2_mark.png", {(0, 0): 1})
    (tmp_path / "metadata.csv").write_text("image,label,mask,split\n1.png,0,,test\n2.png,1,2_mark.png,\n")
    entries = scan(tmp_path).entries
    assert [(e.file, e.label, e.split, e.masks) for e in entries] == [
        ("1.png", 0, "test", ()),
        ("2.png", 1, "test", ("2_mark.png",)),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"image": "1.png", "label": 2}, "metadata.jsonl line 1: expected 0 or 1 in the column 'label', got 2"),
        ({"image": "1.png", "label": 0, "split": "dev"}, "expected train or test in the column 'split', got 'dev'"),
        ({"image": "1.png"}, "got unknown none and missing label"),
        ({"image": "1.png", "label": 0, "anomaly type": "x"}, "got unknown anomaly type and missing none"),
        ({"label": 0}, "expected a file in one of the columns image, path, file_name, got none"),
        ({"image": "9.png", "label": 0}, "metadata.jsonl line 1: 9.png does not exist"),
        ({"image": "1.png", "label": 1, "anomaly_type": "good"}, "expected anomaly_type 'good' for label 0 only"),
        ({"image": "1.png", "label": 1, "mask": "m.png"}, "metadata.jsonl line 1: m.png does not exist"),
        ("not JSON", "metadata.jsonl line 1: expected a JSON object, got 'not JSON'"),
        ([1], "metadata.jsonl line 1: expected a JSON object, got '[1]'"),
    ],
)
def test_a_wrong_row_of_metadata_is_named(tmp_path, row, message):
    picture(tmp_path / "1.png")
    (tmp_path / "metadata.jsonl").write_text(row if isinstance(row, str) else json.dumps(row))
    with pytest.raises(ValueError, match=re.escape(message)):
        load_records(tmp_path)


def test_an_image_in_two_rows_is_named(tmp_path):
    picture(tmp_path / "1.png")
    (tmp_path / "metadata.csv").write_text("image,label\n1.png,0\n1.PNG,1\n")
    with pytest.raises(ValueError, match=r"1\.png is in 2 rows: expected one"):
        load_records(tmp_path)


def test_two_metadata_files_are_one_too_many(tmp_path):
    (tmp_path / "metadata.csv").write_text("image,label\n")
    (tmp_path / "metadata.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"expected one of metadata.jsonl, metadata.csv, found \["):
        load_records(tmp_path)


def test_a_visa_table_with_other_columns_or_labels_is_named(tmp_path):
    MINIATURES["visa"](tmp_path)
    table = tmp_path / "split_csv/1cls.csv"
    content = table.read_text()
    table.write_text(content.replace("object", "class"))
    with pytest.raises(ValueError, match=r"split_csv/1cls.csv line 2: expected the columns object.*missing object"):
        load_records(tmp_path)
    table.write_text(content.replace(",anomaly,", ",odd,"))
    with pytest.raises(ValueError, match="line 4: expected 0 or 1 in the column 'label', got 'odd'"):
        load_records(tmp_path)
    with pytest.raises(ValueError, match=r"expected the table split_csv/1cls.csv of the layout 'visa', found none"):
        load_records(tmp_path / "candle", "visa")


def test_unknown_layout(tmp_path):
    with pytest.raises(ValueError, match=r"expected a layout among auto, visa, .*, folder, got 'mvtek'"):
        load_records(tmp_path, "mvtek")


def test_unrecognised_folder_says_what_was_expected_and_what_is_there(tmp_path):
    picture(tmp_path / "holiday/beach/1.png")
    with pytest.raises(ValueError, match="no layout recognised") as error:
        load_records(tmp_path)
    for words in ("holds 1 files under holiday", "mvtec: [CATEGORY/]train/good", "folder:"):
        assert words in str(error.value)
    with pytest.raises(ValueError, match=r"expected images in the layout 'btad' .*found none; the folder holds 1"):
        load_records(tmp_path, "btad")


def test_no_folder_at_all(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder of images, got .*nowhere"):
        load_records(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="the folder is empty"):
        load_records(tmp_path)


@pytest.mark.parametrize("inside", ["", "train/good"])
def test_an_empty_category_is_named(tmp_path, inside):
    mvtec(tmp_path)
    (tmp_path / "screw" / inside).mkdir(parents=True)
    with pytest.raises(ValueError, match="category 'screw' is empty: expected images in screw/, found 0"):
        load_records(tmp_path)


def test_a_missing_mask_is_named_and_can_be_allowed(tmp_path, caplog):
    mvtec(tmp_path)
    (tmp_path / "bottle/ground_truth/broken/000_mask.png").unlink()
    with pytest.raises(ValueError, match=r"bottle/test/Broken/000.png is anomalous but has no mask"):
        load_records(tmp_path)
    records = load_records(tmp_path, allow_missing_masks=True)
    record = next(record for record in records if record["path"] == "bottle/test/Broken/000.png")
    assert (record["label"], record["mask"]) == (1, None)
    assert "bottle/test/Broken/000.png is anomalous but has no mask" in caplog.text


def test_ones_own_folder_may_have_no_masks_and_that_is_said(tmp_path, caplog):
    picture(tmp_path / "lid/normal/1.png")
    picture(tmp_path / "lid/abnormal/2.png")
    with caplog.at_level(logging.INFO):
        records = load_records(tmp_path)
    assert [(record["label"], record["mask"]) for record in records] == [(1, None), (0, None)]
    assert "lid: none of its 1 anomalous images has a mask" in caplog.text


def test_a_published_layout_needs_every_mask(tmp_path):
    mvtec(tmp_path)
    (tmp_path / "Cable/Ground_Truth/cut/a.PNG").unlink()
    with pytest.raises(
        ValueError, match=r"a\.png is anomalous but has no mask; draw the missing masks, or, in Python"
    ):
        load_records(tmp_path)


def test_a_mask_that_could_belong_to_two_images_is_named(tmp_path):
    picture(tmp_path / "normal/n.png")
    picture(tmp_path / "abnormal/dent/1.png")
    picture(tmp_path / "abnormal/scratch/1.png")
    mask(tmp_path / "masks/1.png", {(0, 0): 1})
    images = "abnormal/dent/1.png, abnormal/scratch/1.png"
    with pytest.raises(ValueError, match=f"masks/1.png could be the mask of any of {images}"):
        load_records(tmp_path)


def test_a_mask_of_another_size_is_named(tmp_path):
    mvtec(tmp_path)
    mask(tmp_path / "bottle/ground_truth/broken/000_mask.png", {}, size=(10, 10))
    with pytest.raises(ValueError, match=r"000_mask.png: expected a mask of its image's size 24 x 16, got 10 x 10"):
        load_records(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("mvtec", "bottle/test/Broken/deep/1.png", "bottle/test/Broken/deep/1.png has no place in this layout"),
        ("mvtec", "bottle/ground_truth/broken/9_mask.png", "9_mask.png matches no image"),
        ("visa", "candle/Data/Images/Normal/0009.JPG", "0009.JPG has no place in this layout"),
        ("aitex", "Mask_images/0077_002_00_mask.png", "0077_002_00_mask.png matches no image"),
        ("aitex", "Defect_images/no_code.png", "no_code.png has no place in this layout"),
    ],
)
def test_nothing_is_left_out_silently(tmp_path, caplog, name, file, said):
    MINIATURES[name](tmp_path)
    picture(tmp_path / file)
    load_records(tmp_path)
    assert said in caplog.text


@pytest.mark.parametrize(("name", "count"), [("folder", 3), ("metadata", 2)])
def test_query_images_may_lie_anywhere_in_ones_own_folder(tmp_path, caplog, name, count):
    MINIATURES[name](tmp_path)
    picture(tmp_path / "extra.png")
    picture(tmp_path / "monday/extra.png")
    with caplog.at_level(logging.INFO):
        load_records(tmp_path)
    assert f"{count} images have no label and give no records (extra.png, ...)" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_many_warnings_are_one_line(tmp_path, caplog):
    mvtec(tmp_path)
    for number in range(9):
        picture(tmp_path / f"elsewhere/{number}.png")
    load_records(tmp_path)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "elsewhere/4.png has no place in this layout; and 4 more, which `ideal data check` lists" in line


def test_a_file_among_the_images_that_is_none_is_said(tmp_path, caplog):
    mvtec(tmp_path)
    (tmp_path / "bottle/train/good/notes.docx").write_text("")
    (tmp_path / "bottle/test/Broken/000.json").write_text("{}")  # it must not compete for the mask of 000.png
    assert len(load_records(tmp_path)) == 7
    for file in ("bottle/train/good/notes.docx", "bottle/test/Broken/000.json"):
        assert f"{file} is among the images" in caplog.text


def test_validation_images_join_the_split_asked_for(tmp_path, caplog):
    MINIATURES["bmad"](tmp_path)
    with caplog.at_level(logging.INFO):
        load_records(tmp_path)
    assert "Liver: 2 images of valid/ left out; valid_as='test' (or 'train') includes them" in caplog.text
    records = load_records(tmp_path, valid_as="test")
    validation = records.filter(lambda path: "/valid/" in path, input_columns="path")
    assert [observed(record) for record in validation] == [
        Expected("Liver/valid/Ungood/img/3.png", 1, "Liver", "Ungood", "test", ((1, 1),)),
        Expected("Liver/valid/good/img/2.png", 0, "Liver", "good", "test"),
    ]
    with pytest.raises(ValueError, match="expected valid_as to be 'train', 'test' or None, got 'dev'"):
        load_records(tmp_path, valid_as="dev")


def test_links_are_followed_but_not_in_circles(tmp_path):
    picture(tmp_path / "elsewhere/train/good/1.png")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").symlink_to(tmp_path / "elsewhere")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/again").symlink_to(root)
    assert list_folder(root).files == ("a/train/good/1.png", "b/train/good/1.png")
