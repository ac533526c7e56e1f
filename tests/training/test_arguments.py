"""Arguments: the protocol's defaults, one parser for both commands, refusals that say why."""

import argparse

import pytest

from modeling_ideal.cli import build_parser, main
from modeling_ideal.training import train
from modeling_ideal.training.head.options import TrainingArguments, add_arguments, read_arguments

WORDS = ["--source", "parts", "--output_dir", "out", "--backbone", "vit"]


def parse(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return read_arguments(parser.parse_args([*WORDS, *words]))


def test_the_defaults_are_the_protocol():
    arguments = parse()
    assert arguments == TrainingArguments(source="parts", output_dir="out", backbone="vit")
    assert (arguments.epochs, arguments.episodes_per_epoch, arguments.batch_size) == (20, 500, 16)
    assert (arguments.learning_rate, arguments.setups, arguments.steps_per_epoch) == (1e-3, ["N1A1"], 32)


def test_both_commands_read_the_same():
    words = ["--held-out", "nut", "bolt", "--no-norm", "--setups", "N1A1", "N8A4", "--max_grad_norm", "1"]
    arguments = parse(*words)
    assert (arguments.held_out, arguments.no_norm, arguments.max_grad_norm) == (["nut", "bolt"], True, 1.0)
    assert read_arguments(build_parser().parse_args(["train", *WORDS, *words])) == arguments
    assert parse(*[word.replace("-", "_").replace("__", "--") for word in words]) == arguments


def test_config_values_are_json_or_text():
    values = parse("--config", "loss_form=two_channel", "erase_strength=0.5", "num_neighbors=8").config_values()
    assert values == {"loss_form": "two_channel", "erase_strength": 0.5, "num_neighbors": 8}


def test_only_what_decides_the_result_counts_as_a_difference():
    saved = {**vars(parse()), "epochs": 3, "keep_checkpoints": 9, "cache": "elsewhere"}
    assert parse().differences(saved) == ["epochs: 3 there, 20 now"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "folder"], "expected either --backbone, for a new head, or --model, to fine-tune one"),
        (["--epochs", "0"], "epochs: expected at least 1, got 0"),
        (["--learning_rate", "-1"], r"learning_rate: expected a number > 0, got -1\.0"),
        (["--setups", "N1A0"], "setups: expected abnormal references, without which nothing trains, got 'N1A0'"),
        (["--setups", "1N"], "expected a set-up such as 'N1A1'"),
        (["--config", "alignment"], "config: expected KEY=VALUE, got 'alignment'"),
        (["--categories", "a", "b", "--held_out", "b"], r"expected categories to train on or held out, .* \['b'\]"),
    ],
)
def test_bad_arguments_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse(*words)


def test_a_stage_of_a_trained_model_is_refused():
    with pytest.raises(ValueError, match="--stage and --no_norm choose from a --backbone"):
        TrainingArguments(source="a", output_dir="b", model="c", stage="stage3")


@pytest.mark.parametrize("command", [lambda words: main(["train", *words]), train.main])
def test_bad_input_is_said_in_one_line(command, tmp_path, capsys):
    words = ["--source", str(tmp_path / "none"), "--output_dir", str(tmp_path), "--model", "m", "--backbone", "b"]
    assert command(words) == 2
    error = capsys.readouterr().err
    assert "expected either --backbone" in error
    assert error.count("\n") == 1
