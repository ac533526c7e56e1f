"""Both commands, shared by two processes under `accelerate launch`: the same runs as in one process."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .conftest import command_line, distillation_log

LAUNCH = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]


@pytest.fixture(scope="module")
def two_processes(undisturbed, distilled, environment, tmp_path_factory):
    """Options of a training and a distillation that two processes have done, and what these printed."""
    folder = tmp_path_factory.mktemp("two")
    trained = replace(undisturbed[0], output_dir=str(folder / "trained"))
    student = replace(distilled, output_dir=str(folder / "student"))
    commands = [
        ("modeling_ideal.training.distill", command_line(student)),
        ("modeling_ideal.training.train", command_line(trained)),
    ]
    command = [sys.executable, *LAUNCH, "-m", "tests.training.launched", json.dumps(commands)]
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return trained, student, result.stdout


def test_the_head_follows_the_same_losses(undisturbed, two_processes):
    expected, (trained, _, printed) = undisturbed[1], two_processes
    assert printed.count("Trained on parts") == 1  # the first process alone prints
    record = json.loads((trained.output / "training.json").read_text())
    assert (expected["processes"], record["processes"]) == (1, 2)
    assert len(record["steps"]) == 12
    assert record["steps"] == pytest.approx(expected["steps"], abs=1e-4)
    for ours, theirs in zip(record["validation"], expected["validation"], strict=True):
        for setup in ("N1A1", "N2A1"):
            assert ours["setups"][setup]["mean"] == pytest.approx(theirs["setups"][setup]["mean"], abs=1e-3)


def test_the_student_is_the_same(distilled, two_processes):
    _, student, printed = two_processes
    assert printed.count("Fitting the student") == printed.count("held-out pictures") == 1
    losses, wanted_losses = ([line["loss"] for line in distillation_log(run)[1:]] for run in (student, distilled))
    assert losses == pytest.approx(wanted_losses, abs=1e-5)
    weights, wanted = (load_file(run.output / "model.safetensors") for run in (student, distilled))
    # Attention does not depend on the keys' bias: its gradient is nothing but rounding.
    telling = [name for name in wanted if not name.endswith("key.bias")]
    assert all(torch.allclose(weights[name], wanted[name], atol=1e-5) for name in telling)
