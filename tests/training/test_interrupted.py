"""Killed in mid-epoch and started again, or shared by two processes: the same run."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from modeling_ideal.training.train import train

from ..conftest import threads
from .test_train import assert_same_weights, weights


def command_line(arguments):
    words = []
    for name, value in asdict(arguments).items():
        if value is True:
            words.append(f"--{name}")
        elif isinstance(value, list) and value:
            words += [f"--{name}", *map(str, value)]
        elif value not in (None, False, []):
            words += [f"--{name}", str(value)]
    return ["-m", "modeling_ideal.training.train", *words]


@pytest.fixture
def environment(tmp_path):
    """One thread for all: how many share a sum is what decides its last digit."""
    with threads(1):
        yield {**os.environ, "HF_HOME": str(tmp_path / "home"), "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}


def test_killed_in_mid_epoch_it_ends_with_the_same_weights(arguments, environment, tmp_path):
    changes = {"epochs": 3, "episodes_per_epoch": 60, "batch_size": 3, "checkpoint_steps": 2, "held_out": ["bolt"]}
    undisturbed, killed = (arguments(output_dir=str(tmp_path / name), **changes) for name in ("whole", "killed"))
    expected = train(undisturbed)
    process = subprocess.Popen(
        [sys.executable, *command_line(killed)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    reached = killed.output / "checkpoints" / "step_00000024.pt"  # in the second epoch of 20 steps
    deadline = time.monotonic() + 300
    while not reached.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    last = int(max(file.stem for file in (killed.output / "checkpoints").glob("*.pt")).removeprefix("step_"))
    assert 24 <= last < 40
    assert not (killed.output / "training.json").exists()
    result = train(killed)
    assert result["steps"] == expected["steps"]
    assert result["validation"] == expected["validation"]
    assert_same_weights(weights(killed), weights(undisturbed))


def test_two_processes_follow_the_same_losses(arguments, environment, tmp_path):
    changes = {"epochs": 5, "episodes_per_epoch": 37, "held_out": ["bolt"], "setups": ["N1A1", "N2A1"]}
    one, two = (arguments(output_dir=str(tmp_path / name), **changes) for name in ("one", "two"))
    expected = train(one)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command += ["--main_process_port", "0", *command_line(two)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("Trained on parts") == 1  # the first process alone speaks
    record = json.loads((two.output / "training.json").read_text())
    assert (expected["processes"], record["processes"]) == (1, 2)
    assert len(record["steps"]) == 50  # the last of each epoch with a single episode
    assert record["steps"] == pytest.approx(expected["steps"], abs=1e-4)
    for ours, theirs in zip(record["validation"], expected["validation"], strict=True):
        for setup in ("N1A1", "N2A1"):
            assert ours["setups"][setup]["mean"] == pytest.approx(theirs["setups"][setup]["mean"], abs=1e-3)
