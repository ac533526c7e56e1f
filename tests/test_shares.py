"""`ideal detect` in several processes: each picture judged once, the same results as in one, also after a crash."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from modeling_ideal.cli import main
from modeling_ideal.detection.log import read_log

from .test_line import DETECT, SECONDS, at_line, line  # noqa: F401 - fixtures

LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
LAUNCH += ["--main_process_port", "0", "-m", "modeling_ideal"]
IMAGES = [f"parts/{index:03}.png" for index in range(9)]
KILLED = """
import os, sys
from modeling_ideal.detection.log import ResultsLog

append, count = ResultsLog.append, 0

def dying(log, entry):
    global count
    append(log, entry)
    count += 1
    if count == 2:
        os._exit(9)

ResultsLog.append = dying
from modeling_ideal.cli import main
sys.exit(main(sys.argv[1:]))
"""


def launch(command, **environment):
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


def place(rank, count):
    return {"RANK": str(rank), "WORLD_SIZE": str(count)}


@pytest.fixture
def alone(at_line):  # noqa: F811
    """The results of a single process, in `alone`."""
    assert main([*DETECT[:-1], "alone", *IMAGES, "missing.png"]) == 2
    return results_of(at_line / "alone")


def results_of(folder):
    found = json.loads((folder / "results.json").read_text())
    overlays = {path.name: path.read_bytes() for path in (folder / "overlays").iterdir()}
    return {**found, "overlays": overlays, "csv": (folder / "results.csv").read_bytes()}


def test_two_processes_of_a_launcher_give_the_results_of_one(alone, at_line):  # noqa: F811
    result = launch([*LAUNCH, *DETECT, *IMAGES, "missing.png"])
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("10 pictures: ") == 1, result.stdout  # the first process alone speaks
    found = results_of(at_line / "found")
    assert found["images"] == alone["images"]
    assert found == alone
    assert sorted(path.name for path in at_line.iterdir() if "shares" in path.name) == []


def test_a_launcher_on_each_of_two_machines_gives_the_results_of_one_process(alone, at_line):  # noqa: F811
    """Both machines are this one, which they reach by its address on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shared = ["--num_machines", "2", "--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
    commands = [
        [*LAUNCH[:-4], *shared, "--machine_rank", str(rank), *LAUNCH[-2:], *DETECT, *IMAGES, "missing.png"]
        for rank in (0, 1)
    ]
    with ThreadPoolExecutor(2) as machines:
        first, second = machines.map(launch, commands)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.count("10 pictures: ") == 1, first.stdout
    assert "pictures" not in second.stdout
    assert results_of(at_line / "found") == alone


def test_what_a_process_had_judged_before_it_died_is_not_judged_again(alone, at_line, monkeypatch):  # noqa: F811
    """The second of two processes dies; the work is then done by one of three, and so on."""
    command = [*DETECT, *IMAGES, "missing.png"]
    result = launch([sys.executable, "-c", KILLED, *command], **place(1, 2))
    assert result.returncode == 9, result.stderr
    logs = at_line / "found.shares"
    assert [entry["image"] for entry in read_log(logs / "1-of-2.jsonl")[1:]] == [IMAGES[1], IMAGES[3]]
    assert not (at_line / "found").exists()
    for rank in (2, 1, 0):
        for name, value in place(rank, 3).items():
            monkeypatch.setenv(name, value)
        assert main(command) == 0
        if rank:
            kept = [entry["image"] for entry in read_log(logs / f"{rank}-of-3.jsonl")[1:]]
            assert kept == [name for name in IMAGES[rank::3] if name not in (IMAGES[1], IMAGES[3])]
    assert results_of(at_line / "found") == alone
    assert not logs.exists()


def test_verdicts_of_another_threshold_are_not_mixed_in(at_line, monkeypatch):  # noqa: F811
    for threshold, rank in ((0.9, 1), (0.1, 1), (0.1, 0)):
        for name, value in place(rank, 2).items():
            monkeypatch.setenv(name, value)
        assert main([*DETECT, *IMAGES, "--threshold", str(threshold)]) == 0
    found = json.loads((at_line / "found" / "results.json").read_text())
    assert {entry["threshold"] for entry in found["images"]} == {0.1}


def test_scores_of_another_top_fraction_are_not_mixed_in(at_line, monkeypatch):  # noqa: F811
    """It is a setting of the model that the fingerprint leaves out, because a threshold is found for each."""
    file = at_line / "model" / "config.json"
    for share, rank in ((0.9, 1), (0.3, 1), (0.3, 0)):
        file.write_text(json.dumps({**json.loads(file.read_text()), "top_fraction": share}))
        for name, value in place(rank, 2).items():
            monkeypatch.setenv(name, value)
        assert main([*DETECT, *IMAGES]) == 0
    found = json.loads((at_line / "found" / "results.json").read_text())
    assert len({entry["threshold"] for entry in found["images"]}) == 1


def test_a_video_is_refused(at_line, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("modeling_ideal.detection.detect.check_videos", lambda *_: None)
    assert main([*DETECT, "belt.mp4"]) == 3
    assert "IMAGES: expected pictures for several processes, got the video 'belt.mp4'" in capsys.readouterr().err
