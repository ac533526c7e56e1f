"""Outputs: looked at before the work, and never at the cost of what others wrote."""

from pathlib import Path

import pytest

from modeling_ideal.cli import main
from modeling_ideal.evaluation.command import check_output as check_evaluation
from modeling_ideal.training.distillation.loop import load_state
from modeling_ideal.training.distillation.options import DistillationOptions
from modeling_ideal.training.head.options import HeadTrainingOptions
from modeling_ideal.training.head.report import check_output as check_training
from modeling_ideal.training.head.report import write_options
from modeling_ideal.writing.places import OutputFolder, check_folder, list_name


def test_a_run_that_was_killed_still_knows_its_files(tmp_path):
    first = OutputFolder(tmp_path / "out", "demo", ["a.txt", "b.txt"])
    first.write("a.txt", b"one")
    with open(tmp_path / "out" / list_name("demo"), "a") as stream:
        stream.write('\n["half a li')
    second = OutputFolder(tmp_path / "out", "demo", ["a.txt", "b.txt"])
    second.write("a.txt", b"two")
    third = OutputFolder(tmp_path / "out", "demo", ["a.txt", "b.txt"])  # the list has both versions
    third.write("b.txt", b"three")
    third.finish()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"b.txt", list_name("demo")}
    (tmp_path / "out" / "a.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"'a\.txt' was not written by `ideal demo`, or was changed since"):
        OutputFolder(tmp_path / "out", "demo", ["a.txt", "b.txt"])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no such folder")
def test_a_folder_where_permissions_tell_nothing_is_tried():
    """Root has every permission in /proc, and yet nobody can write there."""
    with pytest.raises(ValueError, match="--out: expected a folder that one may write to, got '/proc'"):
        check_folder(Path("/proc/found"), "--out")


def test_a_folder_is_left_as_it_was(tmp_path):
    check_folder(tmp_path / "new" / "out", "--out")
    assert not any(tmp_path.iterdir())


def test_a_training_leaves_the_models_of_others_alone(tmp_path):
    options = HeadTrainingOptions(source="s", model="m", output_dir=str(tmp_path / "out"))
    check_training(options)
    (tmp_path / "out" / "model").mkdir(parents=True)
    with pytest.raises(ValueError, match="with 'model', which no run has written"):
        check_training(options)
    write_options(options)  # a run that was killed while it wrote its model
    check_training(options)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--output_dir: expected a folder, got .*file"):
        check_training(HeadTrainingOptions(source="s", model="m", output_dir=str(tmp_path / "file" / "out")))


def test_a_distillation_leaves_the_models_of_others_alone(tmp_path):
    options = DistillationOptions(teacher="t", images=["i"], output_dir=str(tmp_path))
    assert load_state(options) is None
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"--output_dir: expected a new folder .* with 'config\.json' of another"):
        load_state(options)


def test_an_evaluation_leaves_the_results_of_others_alone(tmp_path):
    check_evaluation(tmp_path / "new")
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match=r"--out: expected a new folder .* with results\.json"):
        check_evaluation(tmp_path)
    (tmp_path / "measurements").mkdir()
    check_evaluation(tmp_path)


def test_tables_and_exports_replace_their_own_kind_alone(tmp_path, capsys):
    mine = tmp_path / "README.md"
    mine.write_text("# Mine\n")
    assert main(["tables", "docs/results/mpdd_tiny/results.json", "--out", str(mine)]) == 3
    assert "expected a new file or tables made before to replace" in capsys.readouterr().err
    assert main(["export", "--model", "ideal-tiny", "--out", str(mine)]) == 3
    assert "expected a new file or an ONNX file to replace" in capsys.readouterr().err
    assert mine.read_text() == "# Mine\n"
    results = Path(__file__).parents[1] / "docs/results/mpdd_tiny/results.json"
    for _ in range(2):
        assert main(["tables", str(results), "--out", str(tmp_path / "tables.md")]) == 0
