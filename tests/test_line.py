"""`ideal detect` as a process, as a production line has it: exit codes, pipes, Ctrl-C, a kill at any moment."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.cli import main
from modeling_ideal.detection.log import ResultsLog, read_log

from .conftest import PATCH, tiny_model
from .pictures import photograph

IDEAL = [sys.executable, "-m", "modeling_ideal"]
SECONDS = 600  # a slow machine imports torch for a long time
DETECT = ["detect", "--references", "nut.safetensors", "--model", "model", "--out", "found"]


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """A folder with a model, its references and many pictures of parts."""
    folder = tmp_path_factory.mktemp("line")
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    pipe = AnomalyDetectionPipeline(model=tiny_model(), image_processor=processor)
    pipe.save_pretrained(folder / "model")
    with pytest.warns(UserWarning, match="support a false-alarm rate"):
        references = pipe.set_references(normal=[photograph(index) for index in range(3)])
    references.save(folder / "nut.safetensors")
    (folder / "parts").mkdir()
    for index in range(150):
        Image.fromarray(photograph(100 + index)).save(folder / "parts" / f"{index:03}.png")
    return folder


@pytest.fixture
def at_line(line, tmp_path, monkeypatch):
    """The same folder to write to, as the working directory."""
    for name in ("model", "nut.safetensors", "parts"):
        (tmp_path / name).symlink_to(line / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start():
    """Starts `ideal`; what still runs at the end of a test is killed."""
    with ExitStack() as started:

        def run(*words):
            command = [*IDEAL, *words]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield run


def wait_for(condition, process):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_files(folder, complete):
    """Everything that is there is whole, and agrees; returns the results."""
    report = json.loads((folder / "results.json").read_text())
    assert report["complete"] is complete
    with open(folder / "results.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["image"] for row in rows] == [entry["image"] for entry in report["images"]]
    assert (folder / "report.html").read_text().endswith("</main></html>\n")
    for entry in report["images"]:
        Image.open(folder / entry["overlay"]).load()
    return report["images"]


def test_ctrl_c_keeps_what_was_judged_and_leaves_no_half_file(at_line, start):
    process = start(*DETECT, "parts")
    log = at_line / "found" / "results.jsonl"
    wait_for(lambda: lines_of(log) >= 3, process)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert (out, error) == ("", "ideal: interrupted\n")
    entries = check_files(at_line / "found", complete=False)
    assert 3 <= len(entries) < 150
    assert [entry["image"] for entry in read_log(log)] == [entry["image"] for entry in entries]
    assert not list(at_line.rglob("*.partial"))


def test_a_kill_loses_nothing_and_the_next_run_goes_on_in_its_place(at_line, start, capsys):
    process = start(*DETECT, "parts")
    log = at_line / "found" / "results.jsonl"
    wait_for(lambda: lines_of(log) >= 3, process)
    process.kill()
    process.communicate()
    assert len(read_log(log)) >= 3
    check_files(at_line / "found", complete=False)
    drawn = len(list((at_line / "found" / "overlays").glob("[0-9]*.png")))
    pictures = [f"parts/{index:03}.png" for index in range(drawn + 1)]
    assert main([*DETECT, *pictures[:2]]) == 3  # it would mix two results
    assert "would be mixed" in capsys.readouterr().err
    assert main([*DETECT, *pictures]) == 0
    assert [entry["image"] for entry in check_files(at_line / "found", complete=True)] == pictures
    assert lines_of(log) == len(pictures)


def test_a_reader_that_leaves_changes_nothing_but_the_output(at_line, start):
    words = [*DETECT, "parts/000.png", "absent.png"]
    process = start(*words, "--json")
    process.stdout.close()
    assert process.wait(SECONDS) == 2
    assert process.stderr.read() == ""
    report = json.loads((at_line / "found" / "results.json").read_text())
    assert [("error" in entry) for entry in report["images"]] == [False, True]
    help_text = start("detect", "--help")
    help_text.stdout.close()
    assert help_text.wait(SECONDS) == 0
    assert help_text.stderr.read() == ""


def test_exit_codes_and_json(at_line, capsys):
    parts = ["parts/000.png", "parts/001.png"]
    for threshold, code in (("1", 0), ("0", 1)):
        assert main([*DETECT, *parts, "--threshold", threshold, "--json"]) == code
        said = capsys.readouterr()
        assert said.err == ""
        report = json.loads(said.out)
        assert report == json.loads((at_line / "found" / "results.json").read_text())
        assert report["counts"] == {"anomalous": 2 * code, "normal": 2 * (1 - code), "error": 0}
    (at_line / "cut.png").write_bytes((at_line / "parts" / "000.png").read_bytes()[:100])
    (at_line / "other").mkdir()
    assert main([*DETECT[:-1], "other", *parts, "cut.png", "--threshold", "0", "--json"]) == 2  # although two are bad
    assert json.loads(capsys.readouterr().out)["counts"] == {"anomalous": 2, "normal": 0, "error": 1}
    assert main([*DETECT, *parts, "--threshold", "7"]) == 3
    assert "threshold: expected a number in 0..1, got 7.0" in capsys.readouterr().err


def test_the_exit_codes_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["detect", "--help"])
    said = capsys.readouterr().out
    for code in ("0    every picture is normal", "1    some", "2    some", "3    wrong use", "130  stopped by Ctrl-C"):
        assert f"\n  {code}" in said
    assert "\nexamples:\n  ideal detect --references" in said


def test_parquet_and_csv_for_machines(at_line, monkeypatch, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    Image.fromarray(photograph(1)).save(at_line / "=1+1.png")
    assert main([*DETECT, "=1+1.png", "absent.png", "parts/000.png", "--threshold", "0", "--parquet"]) == 2
    with open(at_line / "found" / "results.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["image"] for row in rows] == ["./=1+1.png", "absent.png", "parts/000.png"]
    assert rows[1]["error"].startswith("absent.png: expected a readable image")
    assert rows[0]["label"] == "anomalous"
    table = parquet.read_table(at_line / "found" / "results.parquet").to_pylist()
    entries = json.loads((at_line / "found" / "results.json").read_text())["images"]
    assert [row["score"] for row in table] == [entry.get("score") for entry in entries]
    assert table[0]["boxes"] == [region["box"] for region in entries[0]["regions"]]
    assert rows[0]["box"] == " ".join(map(str, entries[0]["regions"][0]["box"]))
    monkeypatch.setattr("modeling_ideal.detection.detect.find_spec", lambda _: None)
    assert main([*DETECT, "absent.png", "--parquet"]) == 3
    assert "pip install 'modeling-ideal[parquet]'" in capsys.readouterr().err


def test_a_picture_that_breaks_the_model_leaves_the_others_judged(at_line, monkeypatch, capsys):
    score = AnomalyDetectionPipeline._score
    calls = []

    def failing(self, items, *rest):
        calls.append(items[0]["name"])
        if items[0]["size"] == (50, 60):
            raise RuntimeError("out of memory: tried to allocate 900 GiB\nat line 3")
        return score(self, items, *rest)

    monkeypatch.setattr(AnomalyDetectionPipeline, "_score", failing)
    Image.fromarray(photograph(1, (50, 60))).save(at_line / "huge.png")
    words = [*DETECT, "parts/000.png", "huge.png", *(f"parts/{index:03}.png" for index in range(1, 8))]
    assert main(words) == 2
    entries = json.loads((at_line / "found" / "results.json").read_text())["images"]
    assert [entry["image"] for entry in entries if "error" in entry] == ["huge.png"]
    assert len(entries) == 9
    assert "huge.png: expected a picture that can be judged, got RuntimeError: out of memory" in entries[1]["error"]
    with pytest.raises(RuntimeError, match="900 GiB"):
        main([*words, "--debug"])


def test_a_torn_line_is_dropped_and_a_wrong_one_is_named(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"image": "a"}\n{"image": "b"}\n{"ima')
    assert [entry["image"] for entry in read_log(path)] == ["a", "b"]
    log = ResultsLog(path)
    log.append({"image": os.fsdecode(b"\xff\n.png"), "score": 1})
    log.close()
    assert [entry["image"] for entry in read_log(path)] == ["a", "b", os.fsdecode(b"\xff\n.png")]
    path.write_bytes(b'{"image": "a"}\n[]\n')
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2: expected a result with an image, got b'\[\]'"):
        read_log(path)
    path.write_bytes(b"\x00\x00\n")
    with pytest.raises(ValueError, match="line 1: expected a result as JSON"):
        read_log(path)


def test_the_references_of_the_line_are_calibrated(line):
    assert IdealReferences.load(line / "nut.safetensors").calibration is not None
