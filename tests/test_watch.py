"""`ideal watch`: every picture is judged exactly once, whatever happens to the watcher and to the folder."""

import argparse
import json
import os
import time
from collections import Counter
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from modeling_ideal.detection import arrivals as arrivals_module
from modeling_ideal.detection.log import read_log
from modeling_ideal.detection.used_references import UsedReferences
from modeling_ideal.detection.watch import Watcher
from modeling_ideal.detection.watch_folder import WatchFolder

from .pictures import photograph

FACTS = {"model": "m", "references": "r.safetensors", "warnings": ["few references"]}


def png(seed):
    buffer = BytesIO()
    Image.fromarray(photograph(seed)).save(buffer, format="PNG")
    return buffer.getvalue()


def judge(pictures, names):
    """Verdicts without a model: the score is the brightness."""
    for picture in pictures:
        score = float(picture.mean()) / 255
        yield {
            "score": score,
            "label": "anomalous" if score >= 0.5 else "normal",
            "threshold": 0.5,
            "regions": [],
            "anomaly_map": np.zeros(picture.shape[:2], np.float32),
            "overlay": Image.fromarray(picture),
        }


class NoDrift:
    def add(self, anomaly_map):
        return None


def used_references(tmp_path):
    file = tmp_path / "r.safetensors"
    if not file.exists():
        file.write_bytes(b"references")
    return UsedReferences(file)


def watcher(tmp_path, said=None, drift=None, **changes):
    settings = {"interval": 0.01, "grace": 0.1, "report_every": 0.01, "batch_size": 2, "json": True} | changes
    out = WatchFolder(tmp_path / "out", tmp_path / "in")
    with out.claimed():
        pass
    say = (said if said is not None else []).append
    options = argparse.Namespace(**settings)
    return Watcher(out, judge, drift or NoDrift(), FACTS, options, say, used_references(tmp_path))


def run_once(tmp_path, **settings):
    watching = watcher(tmp_path, **settings)
    watching.run(once=True)
    watching.close()
    return [entry["image"] for entry in watching.judged]


def log_of(tmp_path):
    return read_log(tmp_path / "out" / "results.jsonl")


@pytest.fixture
def camera(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_each_picture_is_judged_once_over_restarts(tmp_path, camera):
    for name in ("b.png", "a.png"):
        (camera / name).write_bytes(png(1))
    (camera / "day" / "two").mkdir(parents=True)
    (camera / "day" / "two" / "a.png").write_bytes(png(2))
    (camera / "notes.txt").write_text("no picture")
    (camera / ".hidden.png").write_bytes(png(3))
    said = []
    assert sorted(run_once(tmp_path, said=said)) == ["a.png", "b.png", "day/two/a.png"]
    assert [json.loads(text)["image"] for text in said] == [entry["image"] for entry in log_of(tmp_path)]
    assert run_once(tmp_path) == []
    (camera / "c.png").write_bytes(png(3))
    assert run_once(tmp_path) == ["c.png"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<article") == page.count("<label") == 4
    assert page.count("data:image/jpeg") == 8  # those of the first run too
    assert "few references" in page
    assert 'href="../in/day/two/a.png"' in page


def test_new_content_is_a_new_picture_and_the_same_content_is_not(tmp_path, camera):
    (camera / "a.png").write_bytes(png(1))
    assert run_once(tmp_path) == ["a.png"]
    (camera / "a.png").write_bytes(png(1))
    os.utime(camera / "a.png", (1, 1))
    assert run_once(tmp_path) == []
    (camera / "a.png").write_bytes(png(2))
    assert run_once(tmp_path) == ["a.png"]
    (camera / "a.png").write_bytes(png(1))
    assert run_once(tmp_path) == ["a.png"]
    first, second, third = log_of(tmp_path)
    assert first["sha256"] == third["sha256"] != second["sha256"]
    assert {path.name for path in (tmp_path / "out" / "overlays").iterdir()} == {
        f"a_{entry['sha256'][:12]}.png" for entry in (first, second)
    }


def test_half_a_picture_is_waited_for_and_a_broken_one_given_up(tmp_path, camera):
    arrivals = arrivals_module.Arrivals(camera, grace=5)
    content = png(1)
    (camera / "slow.png").write_bytes(content[:100])

    def look(now):
        arrivals.look()
        return [(arrival.name, arrival.error) for arrival in arrivals.complete(now)]

    assert look(0) == []
    assert look(1) == []  # unchanged, but not readable
    (camera / "slow.png").write_bytes(content[:200])
    assert look(2) == []  # changed
    assert look(5.5) == []  # the time of grace begins anew
    (camera / "slow.png").write_bytes(content)
    assert look(6) == []
    [(name, error)] = look(7)
    assert (name, error) == ("slow.png", None)
    (camera / "slow.png").unlink()
    (camera / "broken.png").write_bytes(content[:100])
    assert look(8) == look(9) == look(13.9) == []
    [(name, error)] = look(14)
    assert name == "broken.png"
    assert error.startswith("broken.png: ")
    assert "expected a readable image" in error


def test_a_broken_picture_is_one_error_and_may_be_mended(tmp_path, camera):
    (camera / "a.png").write_bytes(png(1)[:100])
    assert run_once(tmp_path) == ["a.png"]
    assert run_once(tmp_path) == []
    [entry] = log_of(tmp_path)
    assert "expected a readable image" in entry["error"]
    assert "not judged" in (tmp_path / "out" / "report.html").read_text()
    (camera / "a.png").write_bytes(png(1))
    assert run_once(tmp_path) == ["a.png"]


def test_a_folder_may_vanish_and_return(tmp_path, camera, capsys):
    (camera / "a.png").write_bytes(png(1))
    watching = watcher(tmp_path)
    moments = iter(
        [lambda: camera.rename(tmp_path / "away"), lambda: None, lambda: (tmp_path / "away").rename(camera)]
    )
    for _ in range(8):
        watching._look()
        watching._judge_complete(time.monotonic())
        next(moments, lambda: None)()
    watching.close()
    assert [entry["image"] for entry in watching.judged] == ["a.png"]
    said = capsys.readouterr().err
    assert said.count("is gone: waiting for it") == said.count("is back") == 1
    camera.rename(tmp_path / "away")
    assert run_once(tmp_path) == []  # a restart while it is away
    (tmp_path / "away").rename(camera)
    assert run_once(tmp_path) == []


def test_a_file_that_keeps_changing_does_not_hold_up_the_others(tmp_path, camera, monkeypatch):
    (camera / "growing.png").write_bytes(b"x")
    (camera / "a.png").write_bytes(png(1))
    look = arrivals_module.list_pictures

    def growing(folder):
        with open(camera / "growing.png", "ab") as stream:
            stream.write(b"x")
        return look(folder)

    monkeypatch.setattr(arrivals_module, "list_pictures", growing)
    assert run_once(tmp_path) == ["a.png"]


def killed_at(tmp_path, call):
    """Watch in a process that dies at the given call which writes something; returns whether it died."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    count = 0

    def deadly(function, half=None):
        def counted(*words):
            nonlocal count
            count += 1
            if count == call:
                if half is not None:
                    half(*words)
                os._exit(9)
            return function(*words)

        return counted

    os.fsync, os.replace = deadly(os.fsync), deadly(os.replace)
    try:
        watching = watcher(tmp_path)
        stream = watching._log._stream

        class Torn:
            write = staticmethod(
                deadly(stream.write, lambda line: (stream.write(line[: len(line) // 2]), stream.flush()))
            )
            flush, fileno, close = stream.flush, stream.fileno, stream.close

        watching._log._stream = Torn()
        watching.run(once=True)
        watching.close()
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_moment_neither_repeats_nor_forgets(tmp_path):
    deaths = 0
    for call in range(1, 30):
        place = tmp_path / str(call)
        (place / "in").mkdir(parents=True)
        for index in range(3):
            (place / "in" / f"{index}.png").write_bytes(png(index))
        (place / "in" / "half.png").write_bytes(png(7)[:99])
        deaths += killed_at(place, call)
        (place / "in" / "late.png").write_bytes(png(9))
        run_once(place)
        assert Counter(entry["image"] for entry in log_of(place)) == dict.fromkeys(
            ["0.png", "1.png", "2.png", "half.png", "late.png"], 1
        )
        assert not list(place.rglob("*.partial"))
        assert len(list((place / "out" / "overlays").iterdir())) == 4
    assert deaths >= 15


def test_outputs_of_others_are_left_alone(tmp_path, camera, capsys):
    with pytest.raises(ValueError, match="expected another folder than the watched one"):
        WatchFolder(camera, camera)
    with pytest.raises(ValueError, match=r"FOLDER: expected a folder to watch, got .*nowhere"):
        WatchFolder(tmp_path / "out", tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="expected a new or empty folder, or one made by `ideal watch`"):
        WatchFolder(tmp_path / "mine", camera)
    with (
        WatchFolder(tmp_path / "out", camera).claimed(),
        pytest.raises(ValueError, match="expected a folder that nobody else writes to"),
        WatchFolder(tmp_path / "out", camera).claimed(),
    ):
        pass
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"which holds the results of .*in"):
        WatchFolder(tmp_path / "out", tmp_path / "other")


def test_results_within_the_watched_folder_are_not_watched(tmp_path, camera):
    (camera / "a.png").write_bytes(png(1))
    settings = argparse.Namespace(interval=0.01, grace=0.1, report_every=1.0, batch_size=2, json=False)
    said = []
    for _ in range(2):
        out = WatchFolder(camera / "found", camera)
        with out.claimed():
            watching = Watcher(out, judge, NoDrift(), FACTS, settings, said.append, used_references(tmp_path))
            watching.run(once=True)
            watching.close()
    assert len(said) == 1
    assert "  a.png  score 0." in said[0]


def test_drift_is_said_once_until_it_is_over(tmp_path, camera, capsys):
    class Drift:
        answers = iter([None, "it is dark", "it is dark", None, "it is dark"])

        def add(self, anomaly_map):
            return next(self.answers)

    for index in range(5):
        (camera / f"{index}.png").write_bytes(png(index))
    run_once(tmp_path, drift=Drift())
    assert capsys.readouterr().err == "ideal: warning: it is dark\n" * 2
    assert "it is dark" in (tmp_path / "out" / "report.html").read_text()
