"""The checker says in words what is wrong, and the command line gives the exit code."""

import json

import pytest
from PIL import Image

from modeling_ideal.cli import main
from modeling_ideal.data.check import Count, check

from .miniatures import MINIATURES, mask, mvtec, picture


def kinds(report):
    """The kinds of problems in a report, with their messages."""
    found = {}
    for problem in report.problems:
        found.setdefault(problem.kind, []).append(problem.message)
    return found


def test_a_sound_folder_is_counted_and_has_no_problem(tmp_path):
    mvtec(tmp_path)
    report = check(tmp_path, progress=False)
    assert report.problems == ()
    assert report.counts == (
        Count("Cable", "test", "cut", 1, 1),
        Count("Cable", "train", "good", 1, 0),
        Count("bottle", "test", "Broken", 2, 2),
        Count("bottle", "test", "good", 1, 0),
        Count("bottle", "train", "good", 2, 0),
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mvtec", set()),
        ("visa", set()),
        ("btad", set()),
        ("aitex", {"missing mask"}),
        ("bmad", set()),
        ("folder", set()),
        ("metadata", set()),
    ],
)
def test_every_layout_can_be_checked(tmp_path, name, found):
    expected = MINIATURES[name](tmp_path)
    report = check(tmp_path, progress=False)
    assert set(kinds(report)) == found
    assert sum(count.images for count in report.counts) == len(expected)


def test_a_missing_mask(tmp_path):
    mvtec(tmp_path)
    (tmp_path / "bottle/ground_truth/broken/000_mask.png").unlink()
    assert kinds(check(tmp_path)) == {"missing mask": ["bottle/test/Broken/000.png is anomalous but has no mask"]}


def test_a_picture_of_several_frames(tmp_path):
    mvtec(tmp_path)
    path = tmp_path / "bottle/test/good/000.png"
    frame = Image.open(path)
    frame.save(path, save_all=True, append_images=[frame.rotate(180)])
    message = "bottle/test/good/000.png: expected an image of one frame, got a PNG file of several"
    assert kinds(check(tmp_path)) == {"unreadable file": [message]}


def test_an_empty_mask(tmp_path):
    mvtec(tmp_path)
    mask(tmp_path / "bottle/ground_truth/broken/000_mask.png", {})
    (message,) = kinds(check(tmp_path))["empty mask"]
    assert message == (
        "bottle/test/Broken/000.png is anomalous but its mask bottle/ground_truth/broken/000_mask.png is empty"
    )


def test_the_mask_of_a_normal_image(tmp_path):
    MINIATURES["bmad"](tmp_path)
    mask(tmp_path / "Liver/test/good/label/4.png", {(0, 0): 255})
    (message,) = kinds(check(tmp_path))["mask of a normal image"]
    assert message == "Liver/test/good/img/4.png is normal but its mask Liver/test/good/label/4.png is not empty"


def test_a_mask_of_another_size_and_one_without_image(tmp_path):
    mvtec(tmp_path)
    mask(tmp_path / "bottle/ground_truth/broken/000_mask.png", {(0, 0): 255}, size=(5, 6))
    mask(tmp_path / "bottle/ground_truth/broken/0003_mask.png", {(0, 0): 255})
    assert kinds(check(tmp_path)) == {
        "mismatching mask": [
            "bottle/ground_truth/broken/000_mask.png: expected a mask of its image's size 24 x 16, got 5 x 6"
        ],
        "mask without image": ["bottle/ground_truth/broken/0003_mask.png matches no image"],
    }


def test_unreadable_and_truncated_files(tmp_path):
    mvtec(tmp_path)
    whole = (tmp_path / "bottle/train/good/001.JPG").read_bytes()
    (tmp_path / "bottle/train/good/001.JPG").write_bytes(whole[:-100])
    (tmp_path / "bottle/train/good/000.png").write_bytes(b"")
    (tmp_path / "Cable/Ground_Truth/cut/a.PNG").write_bytes(b"no image")
    messages = kinds(check(tmp_path))["unreadable file"]
    assert [message.split(":")[0] for message in messages] == [
        "Cable/Ground_Truth/cut/a.PNG",
        "bottle/train/good/000.png",
        "bottle/train/good/001.JPG",
    ]
    assert "truncated" in messages[2]


def test_pictures_in_train_and_test_and_as_normal_and_anomalous(tmp_path):
    mvtec(tmp_path)
    Image.open(tmp_path / "bottle/train/good/000.png").save(tmp_path / "bottle/test/good/copy.bmp")
    Image.open(tmp_path / "bottle/test/good/000.png").save(tmp_path / "bottle/test/Broken/000.png")
    assert kinds(check(tmp_path)) == {
        "duplicate": [
            "bottle/test/good/copy.bmp in test shows the same picture as bottle/train/good/000.png in train"
        ],
        "contradiction": [
            "bottle/test/Broken/000.png is anomalous but shows the same picture as bottle/test/good/000.png, "
            "which is normal"
        ],
    }


def test_images_far_from_the_others_in_size(tmp_path):
    mvtec(tmp_path)
    picture(tmp_path / "bottle/train/good/huge.png", size=(24, 33))
    picture(tmp_path / "bottle/train/good/double.png", size=(48, 32))
    assert kinds(check(tmp_path)) == {
        "odd size": ["bottle/train/good/huge.png has 24 x 33 pixels, while bottle usually has 24 x 16"]
    }


def test_an_empty_category_does_not_hide_the_rest(tmp_path):
    mvtec(tmp_path)
    (tmp_path / "screw/train/good").mkdir(parents=True)
    report = check(tmp_path)
    assert kinds(report) == {"empty category": ["category 'screw' is empty: expected images in screw/, found 0"]}
    assert len(report.counts) == 5


def test_many_problems_of_a_kind_are_cut_short_in_words(tmp_path):
    mvtec(tmp_path)
    for number in range(25):
        mask(tmp_path / f"bottle/ground_truth/broken/9{number:02}_mask.png", {(0, 0): 255})
    report = check(tmp_path)
    text = report.as_text()
    assert "mask without image (25)" in text
    assert "... and 5 more; --json lists all" in text
    assert len(report.as_json()["problems"]) == 25


def test_the_command_prints_the_table_and_succeeds(tmp_path, capsys):
    mvtec(tmp_path)
    assert main(["data", "check", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path}: layout mvtec, 7 images"
    assert lines[2].split() == ["category", "split", "type", "images", "masks"]
    assert lines[5].split() == ["bottle", "test", "Broken", "2", "2"]
    assert {line.split()[2] for line in lines[3:] if line.startswith("bottle")} >= {"Broken", "normal"}
    assert lines[-1] == "no problems found"


def test_the_command_fails_where_something_is_wrong(tmp_path, capsys):
    MINIATURES["bmad"](tmp_path)
    mask(tmp_path / "RESC/test/Ungood/label/1.png", {})
    assert main(["data", "check", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "note: Liver: 2 images of valid/ left out" in text
    assert "problems found: 1" in text
    assert "RESC/test/Ungood/img/1.png is anomalous but its mask" in text


def test_the_command_prints_json(tmp_path, capsys):
    mvtec(tmp_path)
    (tmp_path / "bottle/train/good/000.png").write_bytes(b"")
    assert main(["data", "check", str(tmp_path), "--layout", "mvtec", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["layout"] == "mvtec"
    assert report["counts"][2] == {
        "category": "bottle",
        "split": "test",
        "anomaly_type": "Broken",
        "images": 2,
        "masks": 2,
    }
    (problem,) = report["problems"]
    assert (problem["kind"], problem["path"]) == ("unreadable file", "bottle/train/good/000.png")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "expected a folder of images, got 'nowhere'"),
        ([".", "--layout", "mvtek"], "expected a layout among auto, visa"),
        (["."], "no layout recognised"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("no pictures here")
    assert main(["data", "check", *arguments]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1
    assert said in output.err


@pytest.mark.real
@pytest.mark.parametrize(("name", "categories", "images"), [("mvtec_ad_448", 12, 1753), ("mpdd_448", 6, 602)])
def test_the_photographs_are_sound(real_data, name, categories, images):
    report = check(real_data / name)
    assert report.layout == "mvtec"
    assert report.problems == report.notes == ()
    assert len({count.category for count in report.counts}) == categories
    assert sum(count.images for count in report.counts) == images
