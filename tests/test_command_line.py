"""The command line `ideal`, as a person calls it."""

import subprocess
import sys

import pytest

from modeling_ideal import __version__
from modeling_ideal.cli import main


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"modeling-ideal {__version__}"


def test_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "modeling_ideal", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == f"modeling-ideal {__version__}"
