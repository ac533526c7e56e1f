"""The command line `ideal`, as a person calls it."""

import subprocess
import sys

import pytest

from modeling_ideal import IDEAL_TINY, __version__, cli, model_name
from modeling_ideal.cli import main

HELP = """
import sys
sys.argv = ["ideal"]  # as the installed script has it
from modeling_ideal.cli import main
try:
    main(sys.argv[1:] + {words!r})
except SystemExit as stop:
    assert stop.code == 0
print([name for name in ("torch", "transformers", "datasets", "accelerate", "numpy") if name in sys.modules])
"""


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"modeling-ideal {__version__}"


def test_as_a_module():
    assert run("-m", "modeling_ideal", "--version").strip() == f"modeling-ideal {__version__}"


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["evaluate", "--help"]])
def test_help_waits_for_no_library(words):
    assert run("-c", HELP.format(words=words)).splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        (["train", "--source", "s", "--output_dir", "o", "--model", "m"], "modeling_ideal.training.train", "training"),
        (
            ["evaluate", "--model", "m", "--target", "t", "--out", "o"],
            "modeling_ideal.evaluation.command",
            "evaluation",
        ),
        (["export", "--model", "m", "--out", "o"], "modeling_ideal.export.onnx", "export"),
        (["app"], "modeling_ideal.app.serve", "app"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(monkeypatch, capsys, command, module, extra):
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name == module:
                raise ModuleNotFoundError("No module named 'sushi'", name="sushi")

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    assert main(command) == 3
    assert capsys.readouterr().err == f"ideal: sushi is not installed: pip install 'modeling-ideal[{extra}]'\n"


def test_a_fault_of_the_program_is_one_line_too_and_debug_shows_where(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "modeling_ideal.training.train", None)
    command = ["train", "--source", "s", "--output_dir", "o", "--model", "m"]
    assert main(command) == 3
    error = capsys.readouterr().err
    assert error.startswith("ideal: a fault of this program, ModuleNotFoundError: import of modeling_ideal.training")
    assert error.count("\n") == 1
    with pytest.raises(ModuleNotFoundError, match="modeling_ideal"):
        main([*command, "--debug"])


@pytest.mark.parametrize(
    "words", [[], ["detect"], ["nonsense"], ["data", "check"], ["detect", "a", "--threshold", "x"]]
)
def test_wrong_use_of_any_command_has_one_exit_code(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 3
    said = capsys.readouterr()
    assert "usage: ideal" in said.err
    assert ": error: " in said.err
    assert said.out == ""


def test_the_embedded_model_has_a_name():
    parsed = cli.build_parser().parse_args(
        ["detect", "a.png", "--references", "r", "--out", "o", "--model", "ideal-tiny"]
    )
    assert parsed.model == IDEAL_TINY
    parsed = cli.build_parser().parse_args(["cost", "--model", "ideal-tiny", "org/other"])
    assert parsed.model == [IDEAL_TINY, "org/other"]
    assert [model_name(folder) for folder in parsed.model] == ["ideal-tiny", "other"]  # as tables and records say


def test_errors_are_one_line_and_debug_shows_where_they_came_from(capsys):
    command = ["tables", "nowhere.json"]
    assert main(command) == 3
    assert capsys.readouterr().err.count("\n") == 1
    for words in (["--debug", *command], [*command, "--debug"]):
        with pytest.raises(FileNotFoundError):
            main(words)


def test_every_command_that_computes_has_a_device():
    actions = cli.build_parser()._subparsers._group_actions[0].choices
    devices = {name for name, command in actions.items() if "--device" in command._option_string_actions}
    assert devices == {"demo", "app", "references", "detect", "watch", "explain", "train", "evaluate", "cost"}


@pytest.mark.parametrize(
    "command",
    ["evaluate --model ideal-tiny --target {} --out o", "train --model ideal-tiny --source {} --output_dir o"],
)
def test_a_data_set_that_is_not_there_is_named_with_its_option(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = command.format("nowhere").split()
    assert main(words) == 3
    option = words[words.index("nowhere") - 1]
    assert (
        f"{option}: expected a folder of images, got 'nowhere', which is not a folder"
        in capsys.readouterr().err.lower()
    )
