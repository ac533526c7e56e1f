"""The command line `ideal`, as a person calls it."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from modeling_ideal import IDEAL_TINY, __version__, cli, model_name
from modeling_ideal.cli import main

EXAMPLE = Path(__file__).with_name("example-references.safetensors")
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


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_is_none_is_refused(capsys, port):
    assert main(["app", "--port", port]) == 3
    assert f"--port: expected a number in 1..65535, got {port}" in capsys.readouterr().err


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


def commands(parser, words=()):
    """All commands below a parser that do something, by their words."""
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found |= commands(command, (*words, name)) or {(*words, name): command}
    return found


def test_every_command_has_examples_in_its_help_which_it_accepts():
    parser = cli.build_parser()
    found = commands(parser)
    assert ("data", "check") in found
    assert len(found) == 14
    for words, command in found.items():
        lines = command.format_help().split("\nexamples:\n", 1)[1].split("\n\n")[0].splitlines()
        assert lines, words
        for line in lines:
            given = shlex.split(re.split(r" [|>] ", line)[0], comments=True)
            assert given[: 1 + len(words)] == ["ideal", *words]
            parser.parse_args(given[1:])


@pytest.mark.parametrize(
    "words", [["demo", "--out", "o"], ["cost"], ["export", "--out", "o.onnx"], ["explain", "a.png", "--out", "o.png"]]
)
def test_a_model_that_is_nowhere_is_said_to_be_so(words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(EXAMPLE.read_bytes())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    references = ["--references", str(EXAMPLE)] if words[0] == "explain" else []
    assert main([*words, *references, "--model", "nowhere"]) == 3
    assert capsys.readouterr().err == (
        "ideal: --model: expected ideal-tiny, a folder or a Hub name, got 'nowhere', which is no folder here and was "
        "not found on the Hub\n"
    )


def test_a_file_that_is_nowhere_is_said_to_be_so(capsys):
    assert main(["tables", "nowhere.json"]) == 3
    assert capsys.readouterr().err == "ideal: expected a file or folder, got 'nowhere.json', which does not exist\n"


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
