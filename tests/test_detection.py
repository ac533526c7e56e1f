"""`ideal references` and `ideal detect`, as a person calls them."""

import json

import numpy as np
import pytest
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.detection.files import find_images, match_masks

from .conftest import PATCH, tiny_model
from .pictures import photograph


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor).save_pretrained(folder)
    return folder


@pytest.fixture
def workshop(tmp_path, monkeypatch, model_folder):
    """Folders of pictures, in the working directory; the tiny model as the embedded one."""
    mask = np.zeros((30, 40), np.uint8)
    mask[4:16, 4:20] = 255
    for index in range(3):
        save(tmp_path / "good" / f"{index}.png", photograph(index))
        save(tmp_path / "parts" / "tray" / f"{index}.png", photograph(20 + index, (20 + index, 30)))
    for seed, kind in enumerate(("dent", "scratch")):
        save(tmp_path / "bad" / kind / "0.png", photograph(10 + seed))
        save(tmp_path / "masks" / kind / "0_mask.png", mask)
    (tmp_path / "bad" / "notes.txt").write_text("not a picture")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("modeling_ideal.detection.commands.IDEAL_TINY", str(model_folder))
    return tmp_path


REFERENCES = ["references", "--normal", "good", "--abnormal", "bad", "--masks", "masks", "--out", "nut.safetensors"]


def test_from_folders_to_table_json_and_overlays(workshop, model_folder, capsys):
    assert main([*REFERENCES, "--types", "--false-alarm", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert "3 normal and 2 abnormal, defects marked, types ['dent', 'scratch']" in printed
    references = IdealReferences.load("nut.safetensors")
    assert f"threshold {references.calibration.threshold:.3f} for 10.0% false alarms" in printed

    (workshop / "parts" / "cut.png").write_bytes(b"half a picture")
    arguments = ["detect", "--references", "nut.safetensors", "parts", "good/0.png", "absent.png", "--out", "found"]
    assert main(arguments) == 1
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["image", "label", "type", "score", "probability"]
    assert len(table) == 1 + 6
    report = json.loads((workshop / "found" / "results.json").read_text())
    assert report["references"] == "nut.safetensors"
    entries = {entry["image"]: entry for entry in report["images"]}
    assert list(entries) == ["parts/cut.png", *(f"parts/tray/{i}.png" for i in range(3)), "good/0.png", "absent.png"]
    for name in ("parts/cut.png", "absent.png"):
        assert f"{name}: expected a readable image, got " in entries.pop(name)["error"]
        assert any(line.startswith(name) and "expected a readable image" in line for line in table)

    for name, entry in entries.items():
        assert entry.keys() == {
            "image", "score", "probability", "label", "threshold", "type", "regions", "overlay"
        }  # fmt: skip
        assert any(line.startswith(name) and f"  {entry['score']:.3f}  " in line for line in table)
        with Image.open(workshop / "found" / entry["overlay"]) as overlay, Image.open(name) as image:
            assert overlay.size == image.size
    assert entries["good/0.png"]["overlay"] == "overlays/0_2.png"  # another 0.png came first
    assert not list(workshop.rglob("*.partial"))


def test_tiled_references_tile_what_is_judged(workshop, capsys):
    assert main([*REFERENCES, "--tiling"]) == 0
    references = IdealReferences.load("nut.safetensors")
    assert references.tile_size == (8 * PATCH, 8 * PATCH)
    assert f"threshold {references.calibration.threshold:.3f} for 5.0% false alarms" in capsys.readouterr().out
    save(workshop / "large.png", photograph(30, (60, 90)))
    assert main(["detect", "--references", "nut.safetensors", "large.png", "--out", "found"]) == 0
    [entry] = json.loads((workshop / "found" / "results.json").read_text())["images"]
    assert entry["threshold"] == references.calibration.threshold


def test_all_read_is_success_and_the_threshold_can_be_given(workshop, model_folder, capsys):
    assert main(["references", "--normal", "good", "--out", "nut.safetensors", "--model", str(model_folder)]) == 0
    assert main(["detect", "--references", "nut.safetensors", "good/*.png", "--out", "found", "--threshold", "0"]) == 0
    report = json.loads((workshop / "found" / "results.json").read_text())
    assert [(entry["label"], entry["threshold"]) for entry in report["images"]] == [("anomalous", 0.0)] * 3
    assert "type" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["references", "--out", "a.safetensors"], "expected --normal DIR, --abnormal DIR or both, got neither"),
        ([*REFERENCES[:-1], "no/a.safetensors"], "--out: expected a file in an existing folder"),
        (["references", "--normal", "nowhere", "--out", "a"], "expected a folder of images, got 'nowhere'"),
        (["references", "--normal", "empty", "--out", "a"], "--normal: expected a folder of images, got none below"),
        (
            ["references", "--abnormal", "good", "--types", "--out", "a"],
            "--types: expected every image of --abnormal",
        ),
        (
            ["references", "--abnormal", "good", "--masks", "masks", "--out", "a"],
            "--masks: expected in 'masks' one mask, NAME or NAME_mask, for each abnormal image, "
            "got another number for good/0.png (2), good/1.png (none), good/2.png (none)",
        ),
        (["detect", "--references", "no.safetensors", "good", "--out", "found"], "no.safetensors"),
        (["detect", "--references", "a", "*.bmp", "--out", "found"], "expected images, got none at '*.bmp'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_and_nothing_is_written(workshop, capsys, arguments, message):
    (workshop / "empty").mkdir()
    before = set(workshop.rglob("*"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert set(workshop.rglob("*")) == before


def test_masks_are_found_by_name_wherever_they_lie(tmp_path):
    images = [tmp_path / "bad" / name for name in ("dent/0.png", "scratch/0.png", "1.jpg")]
    for image in images:
        save(image, photograph(0))
    masks = [tmp_path / "masks" / name for name in ("dent/0_mask.png", "scratch/0.bmp", "deep/1_mask.png")]
    for mask in masks:
        save(mask, np.ones((30, 40), np.uint8))
    assert match_masks(images, str(tmp_path / "bad"), str(tmp_path / "masks")) == masks


def test_images_are_listed_once_in_order(tmp_path):
    for name in ("b.png", "a.png", "below/c.jpg"):
        save(tmp_path / name, photograph(0))
    (tmp_path / "notes.txt").write_text("")
    found = find_images([str(tmp_path / "b.png"), str(tmp_path), str(tmp_path / "**" / "c.*")])
    assert [path.name for path in found] == ["b.png", "a.png", "c.jpg"]
