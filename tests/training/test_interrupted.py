"""Killed in mid-epoch and started again: the same run."""

import signal
import subprocess
import sys

from modeling_ideal.training.head.run import train_head

from .conftest import UNDISTURBED, command_line
from .test_train import assert_same_weights, weights

KILLED_AT_STEP_7 = """
import os, signal, sys
from modeling_ideal.training import train
from modeling_ideal.training.head.loop import HeadTraining

step = HeadTraining._step

def kill(training, batch):
    if batch.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(training, batch)

HeadTraining._step = kill
train.main(sys.argv[1:])
"""


def test_killed_in_mid_epoch_it_ends_with_the_same_weights(undisturbed, options, environment):
    whole, expected = undisturbed
    killed = options(checkpoint_steps=3, keep_checkpoints=3, **UNDISTURBED)
    command = [sys.executable, "-c", KILLED_AT_STEP_7, *command_line(killed)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    saved = sorted(file.name for file in (killed.output / "checkpoints").iterdir())
    assert saved == ["step_00000003.pt", "step_00000004.pt", "step_00000006.pt"]  # an epoch has four steps
    assert not (killed.output / "training.json").exists()
    result = train_head(killed)
    assert result["steps"] == expected["steps"]
    assert result["validation"] == expected["validation"]
    assert_same_weights(weights(killed), weights(whole))
