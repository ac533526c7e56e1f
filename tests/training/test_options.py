"""Options: the protocol's defaults, two spellings, help for each, bad input refused in one line."""

# ruff: noqa: RUF009 - `option` makes a dataclass field

import argparse
from dataclasses import dataclass, fields

import pytest

from modeling_ideal.cli import build_parser, main
from modeling_ideal.training import distill, train
from modeling_ideal.training.distillation.options import DistillationOptions
from modeling_ideal.training.head.options import WITHOUT_EFFECT, HeadTrainingOptions
from modeling_ideal.training.options import add_options, check_same_run, option, read_options

WORDS = ["--source", "parts", "--output_dir", "out", "--backbone", "vit"]
DISTILLATION_WORDS = ["--teacher", "vit", "--images", "a", "b", "--output_dir", "out"]


def parse(*words, options_type=HeadTrainingOptions, required=WORDS):
    parser = argparse.ArgumentParser()
    add_options(parser, options_type)
    return read_options(options_type, parser.parse_args([*required, *words]))


@dataclass
class Example:
    """One field of each kind."""

    place: str = option("where it is", metavar="DIR")
    names: list[str] = option("who comes", [])
    sizes: list[int] = option("how large", [1, 2])
    rate: float | None = option("how fast (default: as before)", None)
    count: int = option("how many", 0)
    quick: bool = option("be quick", False)
    way: str = option("which way", "left", choices=["left", "right"])


def test_options_are_read_by_their_types():
    given = ["--names", "a", "b", "--sizes", "3", "--rate", "1e-2", "--count", "4", "--quick", "--way", "right"]
    read = parse(*given, options_type=Example, required=["--place", "here"])
    assert read == Example("here", ["a", "b"], [3], 0.01, 4, True, "right")
    plain = parse(options_type=Example, required=["--place", "here"])
    assert plain == Example("here", [], [1, 2], None, 0, False, "left")
    plain.names.append("c")
    assert Example("here").names == []


def test_help_shows_the_defaults_that_there_are():
    parser = argparse.ArgumentParser()
    add_options(parser, Example)
    text = " ".join(parser.format_help().split())
    assert "--place DIR where it is --names" in text
    assert "how large (default: 1 2)" in text
    assert "--rate X how fast (default: as before) --count N how many (default: 0) --quick be quick --way" in text
    assert "--way {left,right} which way (default: left)" in text
    with pytest.raises(SystemExit):
        parser.parse_args([])


@pytest.mark.parametrize("options_type", [HeadTrainingOptions, DistillationOptions])
def test_every_option_is_explained_in_both_spellings(options_type):
    parser = argparse.ArgumentParser()
    add_options(parser, options_type)
    text = parser.format_help()
    for each in fields(options_type):
        assert f"--{each.name}" in text
        assert f"--{each.name.replace('_', '-')}" in text
        assert len(each.metadata["help"].split()) >= 3, each.name


def test_the_defaults_are_the_protocol():
    options = parse()
    assert options == HeadTrainingOptions(source="parts", output_dir="out", backbone="vit")
    assert (options.epochs, options.episodes_per_epoch, options.batch_size) == (20, 500, 16)
    assert (options.learning_rate, options.setups, options.steps_per_epoch) == (1e-3, ["N1A1"], 32)


def test_both_commands_read_the_same():
    words = ["--held-out", "nut", "bolt", "--no-norm", "--setups", "N1A1", "N8A4", "--max_grad_norm", "1"]
    options = parse(*words)
    assert (options.held_out, options.no_norm, options.max_grad_norm) == (["nut", "bolt"], True, 1.0)
    parsed = build_parser().parse_args(["train", *WORDS, *words])
    assert read_options(HeadTrainingOptions, parsed) == options
    assert parse(*[word.replace("-", "_").replace("__", "--") for word in words]) == options


def test_config_values_are_json_or_text():
    values = parse("--config", "loss_form=two_channel", "erase_strength=0.5", "num_neighbors=8").config_values()
    assert values == {"loss_form": "two_channel", "erase_strength": 0.5, "num_neighbors": 8}


def test_only_what_decides_the_result_counts_as_a_difference():
    saved = {**vars(parse()), "epochs": 3, "keep_checkpoints": 9, "cache": "elsewhere"}
    with pytest.raises(ValueError, match=r"out holds a run with other options \(epochs: 3 there, 20 now\): repeat"):
        check_same_run(parse(), saved, WITHOUT_EFFECT, "out")
    check_same_run(parse("--epochs", "3"), saved, WITHOUT_EFFECT, "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "folder"], "expected either --backbone, to train a new head, or --model, to fine-tune one"),
        (["--epochs", "0"], "epochs: expected at least 1, got 0"),
        (["--learning_rate", "-1"], r"learning_rate: expected a number > 0, got -1\.0"),
        (["--setups", "N1A0"], "setups: expected at least one abnormal reference to learn from, got 'N1A0'"),
        (["--setups", "1N"], "expected a set-up such as 'N1A1'"),
        (["--config", "alignment"], "config: expected KEY=VALUE, got 'alignment'"),
        (["--categories", "a", "b", "--held_out", "b"], r"expected each category in .*, got \['b'\] in both"),
    ],
)
def test_bad_options_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse(*words)


def test_a_stage_of_a_trained_model_is_refused():
    with pytest.raises(ValueError, match="expected --stage and --no_norm with --backbone alone, got them"):
        HeadTrainingOptions(source="a", output_dir="b", model="c", stage="stage3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "-1"], "steps: expected at least 0, got -1"),
        (["--crops", "-1"], "crops: expected at least 0, got -1"),
        (["--learning_rate", "nan"], "learning_rate: expected a number > 0, got nan"),
        (["--held_out", "1"], r"held_out: expected a fraction between 0 and 1, got 1\.0"),
        (["--warmup", "2"], r"warmup: expected a fraction from 0 to 1, got 2\.0"),
    ],
)
def test_bad_options_of_a_distillation_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse(*words, options_type=DistillationOptions, required=DISTILLATION_WORDS)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (lambda words: main(["train", *words]), [*WORDS, "--model", "m"], "expected either --backbone"),
        (train.main, [*WORDS, "--model", "m"], "expected either --backbone"),
        (distill.main, DISTILLATION_WORDS, "images: expected folders of pictures, got 'a', which is not a folder"),
    ],
)
def test_bad_input_is_said_in_one_line(command, words, message, capsys):
    assert command(words) == 3
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_debug_shows_where_an_error_came_from(capsys):
    words = ["--source", "s", "--output_dir", "o"]  # neither a backbone nor a model
    assert train.main(words) == 3
    assert "expected either --backbone" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected either --backbone"):
        train.main([*words, "--debug"])
