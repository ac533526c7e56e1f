"""Kills at random moments, a full disk, a folder that is read-only or gone: old or new, never half, and a sentence."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from modeling_ideal import IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.detection import detect, results, watch
from modeling_ideal.detection.log import read_log

from .faults import kinds
from .faults.killing import kill_again_and_again
from .faults.kinds import KINDS, Kind

KILLS = 3  # 50 with `make faults`
MEGABYTES = 40  # of the small disk


def write_plainly(folder, number):
    with open(folder / "numbers.json", "w") as stream:
        for part in json.JSONEncoder().iterencode([number] * 100_000):
            stream.write(part)


def check_plainly(folder, last):
    numbers = json.loads((folder / "numbers.json").read_text())
    assert numbers in ([last] * 100_000, [last + 1] * 100_000)


def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path):
    """All in one test, because starting the server of the processes takes longer than the rest."""
    for name in (*KINDS, "careless", "failing"):
        (tmp_path / name).mkdir()
    for name, kind in KINDS.items():
        assert kill_again_and_again(kind, tmp_path / name, KILLS, seed=0) >= KILLS, name
    careless = Kind(kinds.nothing, write_plainly, check_plainly, kinds.nothing)
    with pytest.raises(ValueError, match=r"Expecting value|Unterminated|delimiter"):
        kill_again_and_again(careless, tmp_path / "careless", 50, seed=0)
    failing = Kind(kinds.nothing, kinds.check_results, kinds.nothing, kinds.nothing)
    with pytest.raises(EOFError):
        kill_again_and_again(failing, tmp_path / "failing", 1, seed=0)


def test_references_may_have_a_name_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("x" * 243 + ".safetensors")
    IdealReferences(normal_features=[torch.ones(4, 2)], num_normal=1).save(path)
    assert IdealReferences.load(path).num_normal == 1
    assert [*tmp_path.iterdir()] == [path]


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, and a function that mounts it anew with other options."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = partial(subprocess.run, capture_output=True, text=True, check=True)
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    try:
        mount(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(place)])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a small disk cannot be mounted here: {error.stderr.strip()}")
    try:
        yield place, lambda options: mount(["mount", "-o", f"remount,{options}", str(place)])
    finally:
        mount(["umount", "-l", str(place)])


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("line")
    kinds.prepare_line(folder)
    return folder


def jobs(line, out):
    """The commands that write, as words; each to a place of its own."""
    given = ["--model", str(line / "model"), "--device", "cpu"]
    known = ["--references", str(line / "nut.safetensors"), *given]
    seconds = ["--once", "--interval", "0.05", "--grace", "0.1"]
    part = str(line / "parts" / "normal" / "1.png")
    return {
        "references": ["references", *given, "--normal", str(line / "parts"), "--out", str(out / "nut.safetensors")],
        "detect": ["detect", *known, str(line / "parts"), "--out", str(out / "found")],
        "watch": ["watch", *known, str(line / "camera"), "--out", str(out / "watched"), *seconds],
        "explain": ["explain", *known, part, "--out", str(out / "why.png")],
        "show": ["references", "--show", str(line / "nut.safetensors"), "--out", str(out / "nut.html")],
        "build": ["build", "--model", str(line / "model"), "--out", str(out / "built"), "--overwrite"],
    }


COMMANDS = [*jobs(Path(), Path())]


def contents(folder):
    """Every file below a folder, but the lists of what a command has written, which grow."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and ".written-by" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def fill(folder):
    """Leave no byte free."""
    with open(folder / "filler", "wb", buffering=0) as stream:
        for size in (2**20, 2**12, 1):
            try:
                while stream.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def said_in_a_sentence(capsys):
    """What an error was said to be, in one line after any progress bar."""
    said = capsys.readouterr().err.rstrip("\n").rpartition("\r")[2]
    *bar, sentence = said.splitlines()
    assert not [line for line in bar if not line.startswith("Loading weights")], said
    assert sentence.startswith("ideal: ")
    return sentence


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_said_in_a_sentence_and_nothing_is_lost(name, line, disk, capsys, monkeypatch):
    monkeypatch.setattr("hub.build.verify", lambda *_: None)  # which takes long, and writes nothing
    place, _ = disk
    words = jobs(line, place)[name]
    shutil.copyfile(line / "parts" / "normal" / "1.png", line / "camera" / "first.png")
    assert main(words) in (0, 1), capsys.readouterr().err
    before = contents(place)
    shutil.copyfile(line / "parts" / "normal" / "2.png", line / "camera" / "second.png")
    fill(place)
    capsys.readouterr()
    assert main(words) == 3
    assert "No space left on device" in said_in_a_sentence(capsys)
    (place / "filler").unlink()
    after = contents(place)
    assert not [path for path in after if path.endswith(".partial")]
    if name == "detect":  # a second run takes the place of the first from its beginning on
        kinds.check_detection(place, 0)
        assert not json.loads(after["found/results.json"])["complete"]
    else:
        assert after == before
    assert main(words) in (0, 1)
    if name == "watch":
        assert sorted(entry["image"] for entry in read_log(place / "watched" / "results.jsonl")) == [
            "first.png",
            "second.png",
        ]


@pytest.mark.parametrize("name", ["references", "checkpoints", "features", "evaluation"])
def test_a_full_disk_leaves_what_was_written_before(name, disk):
    place, _ = disk
    kind = KINDS[name]
    kind.prepare(place)
    kind.write(place, 1)
    before = contents(place)
    fill(place)
    with pytest.raises((OSError, SafetensorError), match="No space left on device"):
        kind.write(place, 2)
    (place / "filler").unlink()
    assert contents(place) == before
    kind.check(place, 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_disk_is_noticed_before_the_work(name, line, disk, capsys):
    place, remount = disk
    remount("ro")
    assert main(jobs(line, place)[name]) == 3
    assert "expected a folder that one may write to" in said_in_a_sentence(capsys)
    remount("rw")
    assert not contents(place)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_folder_of_results_that_vanishes_is_said_and_not_made_again(line, tmp_path, capsys, monkeypatch, emptied):
    add, seen = results.Results.add, []

    def vanish(self, name, result, overlay):
        seen.append(name)
        if len(seen) == 3:
            shutil.rmtree(tmp_path / "found")
            (tmp_path / "found").mkdir() if emptied else None  # as a mount point is without its disk
        add(self, name, result, overlay)

    monkeypatch.setattr(results.Results, "add", vanish)
    assert main(jobs(line, tmp_path)["detect"]) == 3
    assert "found' to stay until the end, got it gone or emptied" in said_in_a_sentence(capsys)
    assert contents(tmp_path) == {}


def test_a_folder_of_a_watch_that_vanishes_is_said(line, tmp_path, capsys, monkeypatch):
    for index in range(4):
        shutil.copyfile(line / "parts" / "normal" / "1.png", line / "camera" / f"{index}.png")
    encode = watch.rgb_png

    def vanish(picture):
        shutil.rmtree(tmp_path / "watched", ignore_errors=True)
        return encode(picture)

    monkeypatch.setattr(watch, "rgb_png", vanish)
    assert main(jobs(line, tmp_path)["watch"]) == 3
    assert "expected a file or folder, got" in said_in_a_sentence(capsys)


def test_pictures_that_vanish_are_errors_and_the_others_are_judged(line, tmp_path):
    parts = tmp_path / "parts"
    shutil.copytree(line / "parts", parts)
    words = [str(parts) if word == str(line / "parts") else word for word in jobs(line, tmp_path)["detect"]]
    gone, found = Path(parts, "normal", "3.png"), detect.find_images

    def find_and_lose(patterns):
        images = found(patterns)
        gone.unlink()
        return images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detect, "find_images", find_and_lose)
        assert main(words) == 2
    entries = json.loads((tmp_path / "found" / "results.json").read_text())["images"]
    assert [Path(entry["image"]).name for entry in entries if "error" in entry] == ["3.png"]
    assert len(entries) == kinds.PICTURES


@pytest.mark.parametrize("content", ["{}", "[1]", "no JSON", "\u00e4"])
def test_a_foreign_mark_in_the_folder_of_a_watch_is_said(line, tmp_path, capsys, content):
    (tmp_path / "watched").mkdir()
    (tmp_path / "watched" / ".written-by-ideal-watch").write_text(content, "latin-1")
    assert main(jobs(line, tmp_path)["watch"]) == 3
    assert "expected the mark of `ideal watch`, got another file; choose another --out" in said_in_a_sentence(capsys)
