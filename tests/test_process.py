"""The commands as processes: what they print, how they end, a reader that leaves, Ctrl-C at the worst moment."""

import json
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from modeling_ideal import IdealImageProcessor, IdealReferences
from modeling_ideal.detection.log import read_log

from .conftest import PATCH, tiny_model
from .evaluation.conftest import save_part
from .pictures import photograph
from .test_line import DETECT, IDEAL, SECONDS, at_line, line, lines_of, start, wait_for  # noqa: F401 - fixtures

INTERRUPTED_AT_THE_RENAMING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in what started the tests
replace = os.replace

def interrupted(source, target, *rest, **others):
    if str(target).endswith({name!r}):
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C, when the file is written but not yet there
    return replace(source, target, *rest, **others)

os.replace = interrupted
from modeling_ideal.cli import main
sys.exit(main({words!r}))
"""
REFERENCES = ["references", "--model", "model", "--normal", "normal", "--out", "made.safetensors"]
WATCH = [
    "watch",
    "camera",
    "--references",
    "nut.safetensors",
    "--model",
    "model",
    "--out",
    "seen",
    "--interval",
    "0.1",
]


@pytest.fixture
def workplace(at_line):  # noqa: F811
    """The folder of the line, with good parts in `normal` and pictures in `camera`."""
    for name, count in (("normal", 3), ("camera", 4)):
        (at_line / name).mkdir()
        for index in range(count):
            Image.fromarray(photograph(index + 50)).save(at_line / name / f"{index}.png")
    return at_line


def unfinished(folder):
    return [path for path in folder.rglob("*") if path.name.endswith((".partial", ".tmp"))]


def finish(process):
    out, error = process.communicate(timeout=SECONDS)
    return process.returncode, out, error


def interrupt_when_written(name, words):
    script = INTERRUPTED_AT_THE_RENAMING.format(name=name, words=words)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=SECONDS)
    return done.returncode, done.stdout, done.stderr


def test_references_say_what_was_made_and_a_wrong_call_makes_nothing(workplace, start):  # noqa: F811
    making, wrong = start(*REFERENCES), start(*REFERENCES[:-1], "other.safetensors", "--abnormal", "nowhere")
    code, out, error = finish(making)
    assert (code, error) == (0, "")
    assert "3 normal" in out
    assert "made.safetensors" in out
    assert IdealReferences.load("made.safetensors").num_normal == 3
    code, out, error = finish(wrong)
    assert (code, out) == (3, "")
    assert error.startswith("ideal: --abnormal: expected a folder of images, got 'nowhere'")
    assert error.count("\n") == 1
    assert not (workplace / "other.safetensors").exists()


def test_ctrl_c_leaves_no_half_references_and_those_to_extend_as_they_were(workplace):
    assert interrupt_when_written("made.safetensors", REFERENCES) == (130, "", "ideal: interrupted\n")
    assert not (workplace / "made.safetensors").exists()
    before = (workplace / "nut.safetensors").read_bytes()
    (workplace / "nut.safetensors").unlink()
    (workplace / "nut.safetensors").write_bytes(before)  # no longer a link to that of all tests
    words = ["references", "--extend", "nut.safetensors", "--model", "model", "--normal", "normal"]
    assert interrupt_when_written("nut.safetensors", words) == (130, "", "ideal: interrupted\n")
    assert (workplace / "nut.safetensors").read_bytes() == before
    assert not unfinished(workplace)


def test_in_a_pipe_with_head_all_is_judged_and_the_exit_code_stays(workplace):
    command = shlex.join([*IDEAL, *DETECT, "camera", "--threshold", "0"])
    script = f"{command} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("image ")
    assert done.stdout.count("\n") == 1
    assert json.loads((workplace / "found" / "results.json").read_text())["counts"]["anomalous"] == 4


def test_a_watcher_whose_reader_leaves_goes_on_until_ctrl_c(workplace, start):  # noqa: F811
    process = start(*WATCH, "--interval", "0.1", "--json")
    assert json.loads(process.stdout.readline())["image"] == "0.png"
    process.stdout.close()
    log = workplace / "seen" / "results.jsonl"
    wait_for(lambda: lines_of(log) == 4, process)
    Image.fromarray(photograph(99)).save(workplace / "camera" / "late.png")
    wait_for(lambda: lines_of(log) == 5, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130
    assert process.stderr.read() == "ideal: interrupted\n"
    entries = read_log(log)
    assert sorted(entry["image"] for entry in entries) == ["0.png", "1.png", "2.png", "3.png", "late.png"]
    assert (workplace / "seen" / "report.html").read_text().endswith("</main></html>\n")
    for entry in entries:
        Image.open(workplace / "seen" / entry["overlay"]).load()
    assert not unfinished(workplace)


def test_an_evaluation_goes_on_after_ctrl_c_and_when_nobody_listens(tmp_path, monkeypatch, start, random_parts):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    words = ["evaluate", "--model", "model", "--target", "parts", "--setups", "N1A1", "--seeds", "0", "1"]
    words += ["--methods", "ideal", "--out", "out"]
    code, out, error = interrupt_when_written("results.json", words)
    assert (code, out) == (130, "")
    assert error.endswith("ideal: interrupted\n")
    assert "Traceback" not in error
    measured = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "measurements").iterdir()}
    assert len(measured) == 2
    assert not (tmp_path / "out" / "results.json").exists()
    assert not unfinished(tmp_path)
    again = start(*words)
    again.stdout.close()
    assert again.wait(SECONDS) == 0
    assert "Traceback" not in again.stderr.read()
    assert "N1A1" in json.loads((tmp_path / "out" / "results.json").read_text())["setups"]
    assert {path: path.stat().st_mtime_ns for path in measured} == measured  # not measured again


@pytest.fixture
def random_parts(tmp_path):
    """A target of one category, and a tiny model, in the folder of the test."""
    for kind in ("train", "good", "scratch"):
        for index in range(3):
            save_part(tmp_path / "parts", "nut", kind, str(index), np.random.default_rng(index))
    tiny_model().save_pretrained(tmp_path / "model")
    IdealImageProcessor(size=8 * PATCH, patch_size=PATCH).save_pretrained(tmp_path / "model")
