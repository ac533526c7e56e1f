"""`ideal references --extend` and `--show`, as a person calls them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers.utils import logging as transformers_logging

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.cli import main

from .conftest import PATCH, tiny_model
from .pictures import photograph
from .test_references_file import EXAMPLE


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def made(model_folder, tmp_path_factory):
    """A workshop: pictures, and references files of some of them and of all."""
    place = tmp_path_factory.mktemp("workshop")
    mask = np.zeros((30, 40), np.uint8)
    mask[4:16, 4:20] = 255
    for index in range(3):
        save(place / "good" / f"{index}.png", photograph(index))
        save(place / "all" / f"{index}.png", photograph(index))
    save(place / "all" / "9.png", photograph(9))
    for index, kind in enumerate(("dent", "scratch")):
        save(place / "bad" / kind / f"{index}.png", photograph(10 + index))
        save(place / "masks" / kind / f"{index}_mask.png", mask)
    shared = ["--types", "--model", str(model_folder), "--device", "cpu"]
    sets = {"few": ("good", "bad/dent/0.png", "masks", "0.05"), "all": ("all", "bad", "masks", "0.1")}
    for name, values in sets.items():
        options = zip(("--normal", "--abnormal", "--masks", "--false-alarm"), values, strict=True)
        given = [
            text for option, value in options for text in (option, str(place / value) if value[0] != "0" else value)
        ]
        assert main(["references", *given, *shared, "--out", str(place / f"{name}.safetensors")]) == 0
    return place


@pytest.fixture
def workshop(made, monkeypatch, tmp_path):
    """The workshop, with a file to extend in a working directory of its own."""
    (tmp_path / "nut.safetensors").write_bytes((made / "few.safetensors").read_bytes())
    for name in ("good", "all", "bad", "masks"):
        (tmp_path / name).symlink_to(made / name)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def extend(model_folder):
    return ["references", "--extend", "nut.safetensors", "--model", str(model_folder), "--device", "cpu"]


def test_a_missed_defect_and_a_false_alarm_join_the_file(workshop, extend, capsys):
    new = [
        "--normal",
        "all/9.png",
        "--abnormal",
        "bad/scratch/1.png",
        "--masks",
        "masks/scratch/1_mask.png",
        "--types",
    ]
    assert main([*extend, *new, "--false-alarm", "0.1"]) == 0
    found, expected = IdealReferences.load("nut.safetensors"), IdealReferences.load(workshop / "all.safetensors")
    printed = capsys.readouterr().out
    assert "4 normal and 2 abnormal references, defects marked, types dent, scratch\n" in printed
    assert f"threshold {found.calibration.threshold:.3g} for 10.0% false alarms" in printed
    assert all(f"warning: {warning}" in printed for warning in found.warnings)
    assert found.types == expected.types == ["dent", "scratch"]
    assert found.calibration.threshold == pytest.approx(expected.calibration.threshold, abs=1e-5)
    assert found.calibration.abnormal_scores == pytest.approx(expected.calibration.abnormal_scores, abs=1e-5)
    assert sorted(path.name for path in Path().iterdir()) == ["all", "bad", "good", "masks", "nut.safetensors"]


def test_in_a_process_to_another_file(workshop, extend):
    before = Path("nut.safetensors").read_bytes()
    command = [sys.executable, "-m", "modeling_ideal", *extend, "--normal", "all/9.png", "--out", "more.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("more.safetensors: 4 normal and 1 abnormal references")
    assert Path("nut.safetensors").read_bytes() == before
    assert IdealReferences.load("more.safetensors").calibration.false_alarm == 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected --normal DIR, --abnormal DIR or both, got neither"),
        (["--extend", "no.safetensors", "--normal", "good"], "--extend: expected a file made by `ideal references`"),
        (["--extend", "good", "--normal", "good"], "--extend: expected a file made by `ideal references`, got 'good'"),
        (["--extend", "good/0.png", "--normal", "good"], "expected a safetensors file of IDEAL references"),
        (["--normal", "nowhere.png"], "--normal: expected a folder of images, got 'nowhere.png'"),
        (["--normal", "good", "--masks", "masks"], "--masks: expected --abnormal with them, got none"),
        (["--normal", "nut.safetensors"], "--normal: nut.safetensors: expected a readable image"),
        (
            ["--abnormal", "bad", "--masks", "masks/dent/0_mask.png"],
            "--masks: expected a folder for 2 abnormal images",
        ),
        (["--abnormal", "bad/scratch/1.png"], "--types: expected the type of each new abnormal image"),
        (["--abnormal", "bad/scratch/1.png", "--types"], "--masks: expected one for each new abnormal picture"),
        (["--abnormal", "good/2.png", "--masks", "masks"], "--masks: expected in 'masks' one mask"),
        (["--normal", "good", "--tiling"], "--tiling: expected it when the references are first encoded"),
        (["--normal", "good", "--out", "good/0.png"], "--out: expected a new file or a references file to replace"),
        (["--normal", "good", "--false-alarm", "0.7"], "--false-alarm: expected a number >= 0, below 0.5, got 0.7"),
        (["--normal", "good", "--model", "ideal-tiny"], "expected a set encoded by this model"),
        (["--extend", str(EXAMPLE), "--normal", "good", "--out", "a"], "expected a set encoded by this model"),
    ],
)
def test_bad_arguments_are_refused_and_the_file_stays(workshop, extend, capsys, arguments, message):
    before = Path("nut.safetensors").read_bytes()
    assert main([*extend, *arguments]) > 1
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[-1].startswith("ideal: ")
    assert Path("nut.safetensors").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["all", "bad", "good", "masks", "nut.safetensors"]


def test_a_file_to_write_is_asked_for(workshop, capsys):
    assert main(["references", "--normal", "good"]) > 1
    assert "--out: expected the references file to write, got none" in capsys.readouterr().err


def test_a_file_that_cannot_be_replaced_stays(workshop, extend, monkeypatch, capsys):
    before = Path("nut.safetensors").read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert main([*extend, "--normal", "all/9.png"]) > 1
    assert "No space left on device" in capsys.readouterr().err
    assert Path("nut.safetensors").read_bytes() == before
    assert not list(Path().glob(".*"))


def test_a_person_is_told_what_the_wait_is_for_and_a_program_is_not(workshop, extend, capsys, monkeypatch):
    words = ["--normal", "all/9.png", "--out", "more.safetensors"]
    assert main([*extend, *words]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main([*extend, *words]) == 0
    assert capsys.readouterr().err == "encoding 1 picture, some seconds ...\n"


@pytest.fixture
def faulty(workshop):
    """Folders with the second picture or mask at fault, beside those of the workshop."""
    for folder in ("text", "deep", "blank", "small"):
        save(Path(folder) / "0.png", photograph(10))
    Path("text/1.png").write_text("no picture")
    Image.fromarray(np.full((30, 40), 1000.0, np.float32)).save("deep/1.tif")
    save(Path("pair/0.png"), photograph(10))
    save(Path("pair/1.png"), photograph(11))
    save(Path("blank/1.png"), np.zeros((30, 40), np.uint8))
    save(Path("small/1.png"), np.ones((10, 10), np.uint8))


@pytest.mark.parametrize("tiling", [[], ["--tiling"]], ids=["whole", "tiled"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--normal", "text"], "--normal: text/1.png: expected a readable image"),
        (["--normal", "deep"], "--normal: deep/1.tif: expected float values in 0..1 or 0..255"),
        (["--normal", "good", "--abnormal", "text"], "--abnormal: text/1.png: expected a readable image"),
        (
            ["--normal", "good", "--abnormal", "pair", "--masks", "blank"],
            "--masks: blank/1.png: expected at least one",
        ),
        (["--normal", "good", "--abnormal", "pair", "--masks", "small"], "--masks: small/1.png: expected a mask of"),
        (["--normal", "good", "--abnormal", "pair", "--masks", "text"], "--masks: text/1.png: expected a readable"),
        (["--abnormal", "pair", "--false-alarm", "0.1"], "--false-alarm: expected --normal, or --masks"),
        (["--normal", "good", "--false-alarm", "0.7"], "--false-alarm: expected a number"),
    ],
)
def test_an_error_names_the_option_and_the_file(faulty, model_folder, capsys, arguments, message, tiling):
    made_by = ["--model", str(model_folder), "--device", "cpu", "--out", "new.safetensors"]
    assert main(["references", *arguments, *tiling, *made_by]) == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"ideal: {message}")
    assert not Path("new.safetensors").exists()


@pytest.mark.parametrize("model", ["ideal-tiny", "nowhere"])
@pytest.mark.parametrize("enabled", [True, False])
def test_progress_bars_are_left_as_a_person_set_them(workshop, capsys, monkeypatch, enabled, model):
    monkeypatch.setattr(transformers_logging, "_tqdm_active", enabled)
    main(["references", "--normal", "good/0.png", "--model", model, "--device", "cpu", "--out", "new.safetensors"])
    main(["demo", "--out", "new", "--device", "tpu:x"])
    assert transformers_logging.is_progress_bar_enabled() is enabled
