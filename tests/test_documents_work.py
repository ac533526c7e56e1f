"""What the documents show of training, measuring and publishing runs, on stand-ins for backbone, data and Hub."""

import contextlib
import json
import shutil
from glob import glob
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoConfig, AutoModel

from modeling_ideal.cli import main
from modeling_ideal.evaluation.results_file import read_results

from .conftest import COMMIT
from .evaluation.conftest import save_part
from .test_documents import commands
from .test_documents_run import HUB_BACKBONE, workshop  # noqa: F401 - a fixture

SHORT = ["--epochs", "1", "--episodes_per_epoch", "4", "--batch_size", "2", "--device", "cpu"]
QUICK = ["--seeds", "0", "--device", "cpu"]
ONCE = ["--rounds", "1"]
PUSH = """
import sys
from hub import push
from modeling_ideal.cli import main

push.source_commit = lambda: sys.argv[1]  # the clone may have changes while a test runs
push.verify = lambda *_: None  # the build has just done it
sys.exit(main(sys.argv[2:]))
"""


def words_of(document, *names):
    """The commands of a document with these names, with the stand-in for the backbone of the Hub."""
    return [
        ["backbone" if word == HUB_BACKBONE else word for word in words]
        for words in commands(document)
        if words[0] in names and "my_parts" not in words  # which has a test of its own
    ]


@pytest.fixture
def laboratory(workshop):  # noqa: F811
    """The workshop, with enough pictures for N8A4 in both data sets that the documents speak of."""
    for name in ("mvtec", "mpdd"):
        random = np.random.default_rng(len(name))
        for kind, count in (("train", 8), ("good", 3), ("scratch", 5), ("hole", 2)):
            for index in range(count):
                save_part(workshop / "path" / "to" / name, "nut", kind, f"{index:03}", random)
    return workshop


def test_the_readme_measures_a_backbone(laboratory, capsys):
    evaluate, cost = words_of("README.md", "evaluate", "cost")
    assert main([*evaluate, *QUICK]) == 0
    assert set(read_results("results/mpdd/results.json")["setups"]) == {"N1A1", "N4A1"}
    assert main([*cost, *ONCE]) == 0
    assert "frames" in capsys.readouterr().out


def test_training_and_its_evaluation_run_as_documented(laboratory):
    trained = []
    for words in words_of("docs/training.md", "train", "evaluate"):
        if words[0] == "evaluate":
            assert main([*words, *QUICK]) == 0
        elif words[-1] not in trained:  # the others are the same in several processes
            assert main([*words, *SHORT]) == 0
            trained.append(words[-1])
    assert trained == ["models/mvtec", "shared/mvtec"]
    assert AutoModel.from_pretrained("models/mvtec/model").config.num_deviation_vectors == 45
    assert set(read_results("results/mpdd/results.json")["setups"]) == {"N1A1", "N2A1", "N4A1", "N8A4"}


def test_rivals_are_trained_and_compared_as_documented(laboratory):
    [first, *_] = words_of("docs/training.md", "train")
    assert main([*first, *SHORT]) == 0
    for words in words_of("docs/rivals.md", "train"):
        assert main([*words, *SHORT]) == 0
    [compare] = words_of("docs/rivals.md", "evaluate")
    assert main([*compare, *QUICK, "--setups", "N1A1"]) == 0
    rows = set(read_results("results/rivals/results.json")["methods"])
    assert rows >= {"ideal", "nagl", "nagl_nve", "resad", "resad_nve", "foundad", "anomaly_dino", "coreset"}


def test_a_model_is_built_pushed_and_exported_as_documented(laboratory, tiny_folder, hub, monkeypatch):
    from hub import build as hub_build

    shutil.copytree(tiny_folder, "path/to/trained")
    target = ["--target", "path/to/mpdd", "--setups", "N1A1", "--out", "results/mpdd"]
    assert main(["evaluate", "--model", "path/to/trained", *target, *QUICK]) == 0
    with open("cost.json", "w") as file, contextlib.redirect_stdout(file):
        assert main(["cost", "--model", "path/to/trained", "--json", *ONCE]) == 0
    assert json.loads(Path("cost.json").read_text())

    monkeypatch.setattr(hub_build, "source_commit", lambda: COMMIT)
    [build] = words_of("docs/deployment.md", "build")
    shell = [part for word in build for part in (sorted(glob(word)) if "*" in word else [word])]
    assert main(shell) == 0
    assert AutoConfig.from_pretrained("build/ideal", trust_remote_code=True).model_type == "ideal"

    for place, words in enumerate(words_of("docs/deployment.md", "push")):
        result = hub.run(PUSH, COMMIT, *words, home=laboratory, seconds=600)
        assert result.returncode == 0, (words, result.stderr)
        assert bool(hub.seen("POST", "/commit/")) == (place > 0)  # the first is a dry run
    for words in words_of("docs/deployment.md", "export"):
        assert main(words) == 0
    assert Path("int8.onnx").stat().st_size < Path("backbone.onnx").stat().st_size
