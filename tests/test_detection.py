"""`ideal references` and `ideal detect`, as a person calls them."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences, pipeline_inputs
from modeling_ideal.cli import main
from modeling_ideal.detection.files import find_images, match_masks
from modeling_ideal.writing.png import rgb_png

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
    assert "3 normal and 2 abnormal references, defects marked, types dent, scratch\n" in printed
    references = IdealReferences.load("nut.safetensors")
    assert f"threshold {references.calibration.threshold:.3g} for 10.0% false alarms" in printed

    (workshop / "parts" / "cut.png").write_bytes(b"half a picture")
    arguments = ["detect", "--references", "nut.safetensors", "parts", "good/0.png", "absent.png", "--out", "found"]
    assert main(arguments) == 2
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["image", "label", "type", "score", "threshold", "confidence"]
    assert table[1 + 6 : -1] == [f"warning: {warning}" for warning in references.warnings]
    assert re.fullmatch(r"6 pictures: .*, 2 not judged; [\d.]+ pictures a second. Open found/report.html", table[-1])
    assert references.warnings
    assert all(f"warning: {warning}\n" in printed for warning in references.warnings)
    report = json.loads((workshop / "found" / "results.json").read_text())
    assert report["references"] == "nut.safetensors"
    assert report["warnings"] == references.warnings
    assert report["complete"] is True
    entries = {entry["image"]: entry for entry in report["images"]}
    assert list(entries) == ["parts/cut.png", *(f"parts/tray/{i}.png" for i in range(3)), "good/0.png", "absent.png"]
    for name in ("parts/cut.png", "absent.png"):
        assert entries.pop(name)["error"].startswith(f"{name}: expected a readable image, got ")
        assert any(line.startswith(name) and "expected a readable image" in line for line in table)

    for name, entry in entries.items():
        assert entry.keys() == {
            "image", "score", "confidence", "label", "threshold", "type", "regions", "overlay"
        }  # fmt: skip
        assert any(line.startswith(name) and f"  {entry['score']:.3g}  " in line for line in table)
        with Image.open(workshop / "found" / entry["overlay"]) as overlay, Image.open(name) as image:
            assert overlay.size == image.size
    assert entries["good/0.png"]["overlay"] == "overlays/0_2.png"  # another 0.png came first
    assert not list(workshop.rglob("*.partial"))


def test_a_warning_is_printed_once(workshop, capsys, recwarn):
    assert main(REFERENCES) == 0
    assert main([*DETECT, "parts"]) == 0
    assert not [warning for warning in recwarn if issubclass(warning.category, UserWarning)]
    [warning] = IdealReferences.load("nut.safetensors").warnings
    assert capsys.readouterr().out.count(warning) == 2  # once by each command


def test_tiled_references_tile_what_is_judged(workshop, capsys):
    assert main([*REFERENCES, "--tiling"]) == 0
    references = IdealReferences.load("nut.safetensors")
    assert references.tile_size == (8 * PATCH, 8 * PATCH)
    assert f"threshold {references.calibration.threshold:.3g} for 5.0% false alarms" in capsys.readouterr().out
    save(workshop / "large.png", photograph(30, (60, 90)))
    assert main(["detect", "--references", "nut.safetensors", "large.png", "--out", "found"]) == 0
    [entry] = json.loads((workshop / "found" / "results.json").read_text())["images"]
    assert entry["threshold"] == references.calibration.threshold


def test_all_read_is_success_and_the_threshold_can_be_given(workshop, model_folder, capsys):
    assert main(["references", "--normal", "good", "--out", "nut.safetensors", "--model", str(model_folder)]) == 0
    assert main(["detect", "--references", "nut.safetensors", "good/*.png", "--out", "found", "--threshold", "0"]) == 1
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
        ([*REFERENCES[:-1], "good"], "--out: expected a file to write, got the folder 'good'"),
        (
            [*REFERENCES[:-1], "good/0.png"],
            "--out: expected a new file or a references file to replace, got 'good/0.png'",
        ),
        ([*REFERENCES[:-1], "good/0.png/a"], "--out: expected a file in an existing folder, got 'good/0.png/a'"),
        (
            ["detect", "--references", "no.safetensors", "good", "--out", "found"],
            "--references: expected a file made by `ideal references`, got 'no.safetensors'",
        ),
        (["detect", "--references", "bad", "good", "--out", "found"], "--references: expected a file made by"),
        (["detect", "--references", "good/0.png", "good", "--out", "found"], "expected a safetensors file"),
        (["detect", "--references", "good/0.png", "*.bmp", "--out", "found"], "expected images, got none at '*.bmp'"),
        (["detect", "--references", "good/0.png", "empty", "--out", "found"], "got none below 'empty'"),
        (
            ["detect", "--references", "good/0.png", "good", "--out", "good"],
            "--out: expected a new or empty folder, or one made by `ideal detect`, got 'good', which holds other",
        ),
        (
            ["detect", "--references", "good/0.png", "good", "--out", "good/0.png"],
            "--out: expected a folder, got 'good/0.png', where 'good/0.png' is a file",
        ),
        (
            ["detect", "--references", "good/0.png", "good", "--out", "good/0.png/a/b"],
            "--out: expected a folder, got 'good/0.png/a/b', where 'good/0.png' is a file",
        ),
        (
            [*REFERENCES, "--device", "tpu:x"],
            "--device: expected one of ['cpu",
        ),
        ([*REFERENCES, "--model", "./none"], "./none"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_and_nothing_is_written(workshop, capsys, arguments, message):
    (workshop / "empty").mkdir()
    before = set(workshop.rglob("*"))
    assert main(arguments) == 3
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert set(workshop.rglob("*")) == before


def refuse(**_):
    raise PermissionError("read-only")


def test_a_folder_that_one_may_not_write_to_is_noticed_before_the_work(workshop, capsys, monkeypatch):
    monkeypatch.setattr("modeling_ideal.writing.places.TemporaryFile", refuse)  # root may write anywhere
    monkeypatch.setattr("modeling_ideal.detection.judging.load_pipeline", lambda _: pytest.fail("looked too late"))
    assert main(REFERENCES) == 3
    assert "--out: expected a folder that one may write to, got '.'" in capsys.readouterr().err
    assert main(["detect", "--references", "good/0.png", "good", "--out", "far/below"]) == 3
    assert "--out: expected a folder that one may write to, got '.'" in capsys.readouterr().err


def test_a_model_file_that_is_damaged_is_named_in_one_line(workshop, model_folder, tmp_path, capsys):
    shutil.copytree(model_folder, "model")
    content = Path("model/model.safetensors").read_bytes()
    Path("model/model.safetensors").write_bytes(content[: len(content) // 2])
    assert main([*REFERENCES, "--model", "model"]) == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith("ideal: ")
    with pytest.raises(Exception, match=r"(?i)safetensors|header|incomplete"):
        main([*REFERENCES, "--model", "model", "--debug"])


DETECT = ["detect", "--references", "nut.safetensors", "--out", "parts/found"]


def written(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_second_run_replaces_the_first_and_touches_nothing_else(workshop, capsys):
    assert main(REFERENCES) == 0
    assert main([*DETECT, "parts"]) == 0
    found = workshop / "parts" / "found"
    (found / "notes.txt").write_text("mine")
    before = written(found)
    assert main([*DETECT, "parts"]) == 0  # does not judge the overlays of the first
    assert written(found) == before

    save(workshop / "parts" / "tray" / "9.png", photograph(40))
    (workshop / "parts" / "tray" / "0.png").write_bytes(b"half a picture")
    assert main([*DETECT, "parts"]) == 2
    report = json.loads((found / "results.json").read_text())
    assert [entry.get("overlay") for entry in report["images"]] == [None, *(f"overlays/{name}.png" for name in "129")]
    assert {file.name for file in (found / "overlays").iterdir()} == {"1.png", "2.png", "9.png"}
    assert (found / "notes.txt").read_text() == "mine"

    before = written(found)
    capsys.readouterr()
    assert main([*DETECT, "good/0.png"]) == 3
    assert "'overlays/1.png' belongs to another result and would be mixed with this" in capsys.readouterr().err
    (found / "overlays" / "1.png").write_bytes(b"retouched")
    assert main([*DETECT, "parts"]) == 3
    assert "'overlays/1.png' was not written by `ideal detect`, or was changed since" in capsys.readouterr().err
    assert written(found) == {**before, "overlays/1.png": b"retouched"}


def test_what_is_done_before_an_interruption_is_kept(workshop, monkeypatch, capsys):
    assert main(REFERENCES) == 0
    encode, calls = rgb_png, []

    def interrupted(picture):
        calls.append(picture)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(picture)

    monkeypatch.setattr("modeling_ideal.detection.results.rgb_png", interrupted)
    assert main([*DETECT, "parts"]) == 130
    assert capsys.readouterr().err.endswith("ideal: interrupted\n")
    report = json.loads((workshop / "parts" / "found" / "results.json").read_text())
    assert report["complete"] is False
    assert [entry["overlay"] for entry in report["images"]] == ["overlays/0.png", "overlays/1.png"]
    monkeypatch.setattr("modeling_ideal.detection.results.rgb_png", encode)
    assert main([*DETECT, "parts"]) == 0


def test_names_of_any_kind(workshop, capsys):
    names = ["a b.png", "it's.png", 'say "x".png', "ü\u3000部.png", "two\nlines.png", "a" * 251 + ".png", "A B.PNG"]
    names.append(os.fsdecode(b"\xff.png"))  # no text
    for index, name in enumerate(names):
        save(workshop / "odd" / str(index) / name, photograph(index))
    assert main(REFERENCES) == 0
    capsys.readouterr()
    assert main(["detect", "--references", "nut.safetensors", "odd", "./odd/0/a b.png", "--out", "found"]) == 0
    table = capsys.readouterr().out
    assert "two\\nlines.png" in table
    assert "ü\u3000部.png" in table
    entries = json.loads((workshop / "found" / "results.json").read_text())["images"]
    assert [Path(entry["image"]).name for entry in entries] == names
    assert all((workshop / "found" / entry["overlay"]).is_file() for entry in entries)
    assert len({entry["overlay"].lower() for entry in entries}) == len(names)


def test_images_are_read_by_as_many_processes_as_asked_for(workshop, monkeypatch):
    assert main(REFERENCES) == 0
    loader, asked = pipeline_inputs.DataLoader, []

    def watched(*args, num_workers, **settings):
        asked.append(num_workers)
        return loader(*args, num_workers=0, **settings)

    monkeypatch.setattr(pipeline_inputs, "DataLoader", watched)
    assert main([*DETECT, "parts", "--num-workers", "8"]) == 0
    assert asked == [8]


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
