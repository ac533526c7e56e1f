"""`ideal detect --ray`: the results of one process, each picture judged once, also after a crash."""

import argparse
import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psutil
import pyarrow
import pytest

from modeling_ideal.cli import main
from modeling_ideal.detection.files import unique_names
from modeling_ideal.detection.ray_actors import Actor
from modeling_ideal.detection.shares import Place, Shares, read_shard

from .test_line import DETECT, IDEAL, at_line, line  # noqa: F401 - fixtures
from .test_shares import IMAGES, alone, results_of  # noqa: F401 - fixtures

WORDS = [*DETECT, *IMAGES, "missing.png"]
WITH_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
SECONDS_BETWEEN_LOOKS = 3
ARGUMENTS = {
    "references": "nut.safetensors",
    "model": "model",
    "device": None,
    "threshold": None,
    "smoothing": 4.0,
    "batch_size": 4,
    "num_workers": 0,
}


def table(names):
    overlays = [*unique_names(map(Path, names))]
    columns = {"image": [*map(os.fsencode, names)], "overlay": [*map(os.fsencode, overlays)]}
    return pyarrow.table(columns)


@pytest.fixture
def actor(at_line):  # noqa: F811
    shares = Shares(at_line / "found", [], [], [])
    shares.prepare()
    return Actor(argparse.Namespace(**ARGUMENTS), str(at_line), shares.folder, "key")


def listening(process):
    """The addresses at which a process and those that it started listen now."""
    found = set()
    for one in [process, *process.children(recursive=True)]:
        try:
            found |= {each.laddr.ip for each in one.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue  # it has just ended
    return found


@WITH_RAY
def test_two_actors_give_the_results_of_one_process_and_judge_what_is_missing(alone, at_line, monkeypatch):  # noqa: F811
    """The second of two processes has judged its share, as a crash may leave it; a mark shows whose verdict it is."""
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")
        patch.setenv("WORLD_SIZE", "2")
        assert main(WORDS) == 0
    log = at_line / "found.shares" / "1-of-2.jsonl"
    head, first, *others = log.read_text().splitlines()
    log.write_text("\n".join([head, json.dumps({**json.loads(first), "mark": 1}), *others]) + "\n")
    command = [*IDEAL, *WORDS, "--ray", "--actors", "2"]
    addresses = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            addresses |= listening(psutil.Process(process.pid))
            try:
                printed, said = process.communicate(timeout=SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                continue
    if "expected Ray at 'local'" in said:
        pytest.skip(f"Ray gives up after 30 seconds on a busy machine: {said}")
    assert process.returncode == 2, said  # as without Ray
    assert "10 pictures: 0 anomalous, 9 normal, 1 not judged. Open" in printed
    assert {"127.0.0.1"} == {address.removeprefix("::ffff:") for address in addresses}
    found = results_of(at_line / "found")
    assert found["images"][1].pop("mark") == 1
    assert found["images"] == alone["images"]
    assert found == alone
    assert not (at_line / "found.shares").exists()


def test_an_actor_writes_what_one_process_finds_and_does_not_judge_it_again(alone, actor, monkeypatch):  # noqa: F811
    names = [*IMAGES[:2], "missing.png", os.fsdecode(b"no\xfftext.png")]
    assert actor(table(names)) == table(names)
    (shard,) = actor.folder.glob("key-*.parquet")
    *judged, missing, odd = read_shard(shard)
    for entry, expected in zip(judged, alone["images"], strict=False):
        assert entry["score"] == expected["score"]
        assert (actor.folder / expected["overlay"]).read_bytes() == alone["overlays"][Path(expected["overlay"]).name]
    assert missing == alone["images"][-1]
    assert odd["error"].startswith(names[-1])
    monkeypatch.setattr(actor, "judge", lambda *_: pytest.fail("judged twice"))
    actor(table(names))


def test_a_run_after_a_crash_judges_what_is_missing(alone, at_line, monkeypatch):  # noqa: F811
    """Without Ray: its actors are called in turn, and the first run stops after a shard."""
    asked = []

    def stops(shares, arguments):
        asked.append([str(image) for image in shares.missing(Place(0, 1))])
        shares.prepare()
        actor = Actor(arguments, str(at_line), shares.folder, shares.key)
        yield actor(table(asked[-1][:4]))
        if len(asked) == 1:
            raise KeyboardInterrupt
        yield actor(table(asked[-1][4:]))

    monkeypatch.setattr("modeling_ideal.detection.ray_actors.find_spec", lambda _: True)
    monkeypatch.setattr("modeling_ideal.detection.detect.judged_by_ray", stops)
    assert main([*WORDS, "--ray"]) == 130
    assert main([*WORDS, "--ray"]) == 2
    assert asked == [[*IMAGES, "missing.png"], [*IMAGES[4:], "missing.png"]]
    assert results_of(at_line / "found") == alone
    assert not (at_line / "found.shares").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--actors", "2"], "--actors: expected --ray with it, got none"),
        (["--address", "auto"], "--address: expected --ray with it, got none"),
        (["--ray", "--actors", "0"], "--actors: expected a number >= 1, got 0"),
        (["--ray", "--device", "cuda:1"], "--ray: expected --device cpu, got 'cuda:1'; for GPUs: accelerate launch"),
    ],
)
def test_what_does_not_go_with_ray_is_refused(at_line, monkeypatch, capsys, words, message):  # noqa: F811
    monkeypatch.setattr("modeling_ideal.detection.ray_actors.find_spec", lambda _: True)
    assert main([*WORDS, *words]) == 3
    assert message in capsys.readouterr().err


def test_a_launcher_and_a_missing_ray_are_refused(at_line, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr("modeling_ideal.detection.ray_actors.find_spec", lambda _: None)
    assert main([*WORDS, "--ray"]) == 3
    assert "not installed: pip install 'modeling-ideal[ray]'" in capsys.readouterr().err
    monkeypatch.setattr("modeling_ideal.detection.ray_actors.find_spec", lambda _: True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([*WORDS, "--ray"]) == 3
    assert "--ray: expected no launcher beside it, got 2 processes" in capsys.readouterr().err
