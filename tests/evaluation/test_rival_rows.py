"""Trained rivals as rows of an evaluation: on the same features and references, measured once, refused if foreign."""

import json

import numpy as np
import pytest
import torch

from modeling_ideal import IdealImageProcessor, IdealModel
from modeling_ideal.cli import main
from modeling_ideal.data.reference_sets import read_references
from modeling_ideal.evaluation.methods import METHODS
from modeling_ideal.evaluation.methods.context import Context, Query
from modeling_ideal.evaluation.protocol import evaluation as protocol
from modeling_ideal.evaluation.rival_method import RivalMethod
from modeling_ideal.training.encoder import BackboneEncoder
from modeling_ideal.training.rivals.reference_set import gather_references
from modeling_ideal.training.rivals.registry import RIVALS, load_rival, make_rival

from ..conftest import tiny_model

SETTINGS = {"foundad": {"depth": 1, "width": 8, "num_heads": 2}, "nagl": {"num_proxies": 3}, "resad": {}}


def save_rival(name, folder, model_folder, seed=0):
    """An untrained rival that fits the features of a model."""
    model = IdealModel.from_pretrained(model_folder)
    torch.manual_seed(seed)
    rival = make_rival(name, model.config.hidden_size, SETTINGS[name])
    rival.encoder = BackboneEncoder(model, IdealImageProcessor.from_pretrained(model_folder)).fingerprint
    rival.save_pretrained(folder)


def words(target, model_folder, out, *compared, methods="ideal"):
    start = ["evaluate", "--model", str(model_folder), "--target", str(target), "--out", str(out), "--device", "cpu"]
    return [*start, "--setups", "N1A1", "--seeds", "0", "--methods", methods, "--compare", *compared]


@pytest.fixture(scope="module")
def measured(target, model_folder, tmp_path_factory):
    """A finished evaluation of all rivals, and their folders."""
    root = tmp_path_factory.mktemp("rivals")
    for name in RIVALS:
        save_rival(name, root / name, model_folder)
    compared = [f"{name}={root / name}" for name in RIVALS]
    assert main(words(target, model_folder, root / "out", *compared)) == 0
    return root, compared


def test_rivals_are_rows(measured):
    root, _ = measured
    results = json.loads((root / "out" / "results.json").read_text())
    assert set(results["methods"]) == {"ideal", *RIVALS}
    assert results["others"] == {name: load_rival(root / name).fingerprint for name in RIVALS}
    assert set(results["differences"]["N1A1"]["general"]) == set(RIVALS)
    assert "nagl=nagl" in results["command"]
    assert str(root) not in (root / "out" / "results.json").read_text()
    tables = (root / "out" / "tables.md").read_text()
    assert all(f"| N1A1 | {name} |" in tables for name in ("FoundAD", "NAGL", "ResAD"))
    assert len(read_references(root / "out" / "references.json")) == 2


def test_only_what_changed_is_measured_again(measured, target, model_folder, monkeypatch):
    root, compared = measured
    asked = []
    real = protocol.measure

    def measure(scorer, *others):
        asked.append(list(scorer.methods))
        return real(scorer, *others)

    monkeypatch.setattr(protocol, "measure", measure)
    assert main(words(target, model_folder, root / "out", *compared)) == 0
    assert asked == []
    save_rival("nagl", root / "nagl", model_folder, seed=1)
    assert main(words(target, model_folder, root / "out", *compared)) == 0
    assert asked == [["nagl"], ["nagl"]]  # in both categories


def test_the_whole_table_is_one_run_that_can_be_stopped(measured, target, model_folder, tmp_path, monkeypatch):
    _, compared = measured
    expected = {"ideal", *METHODS, *RIVALS}
    assert main(words(target, model_folder, tmp_path / "whole", *compared, methods="all")) == 0
    whole = json.loads((tmp_path / "whole" / "results.json").read_text())
    assert set(whole["methods"]) == expected
    assert set(whole["differences"]["N1A1"]["general"]) == expected - {"ideal"}
    real, sets = protocol.measure, []

    def stopped_in_the_second(scorer, references, observer):
        sets.append(references.category)
        if len(sets) == 2:
            raise KeyboardInterrupt
        return real(scorer, references, observer)

    monkeypatch.setattr(protocol, "measure", stopped_in_the_second)
    again = words(target, model_folder, tmp_path / "stopped", *compared, methods="all")
    assert main(again) == 130  # as a shell says of Ctrl-C
    assert not (tmp_path / "stopped" / "results.json").exists()
    assert main(again) == 0
    assert sets == [sets[0], sets[1], sets[1]]  # the first is not measured again
    resumed = json.loads((tmp_path / "stopped" / "results.json").read_text())
    assert resumed["methods"] == whole["methods"]
    assert resumed["differences"] == whole["differences"]


def test_a_rival_for_other_features_is_refused(target, model_folder, tmp_path, capsys):
    other = tmp_path / "other"
    tiny_model(seed=1).save_pretrained(other)
    IdealImageProcessor.from_pretrained(model_folder).save_pretrained(other)
    save_rival("nagl", tmp_path / "nagl", other)
    assert main(words(target, model_folder, tmp_path / "out", f"nagl={tmp_path / 'nagl'}")) == 3
    said = capsys.readouterr().err
    assert (
        "nagl: expected a rival that was trained on the backbone, stage and preprocessing of this evaluation" in said
    )


def test_a_name_that_is_taken_is_refused(measured, target, model_folder, tmp_path, capsys):
    root, _ = measured
    assert main(words(target, model_folder, tmp_path / "out", f"coreset={root / 'nagl'}")) == 3
    assert "expected a new name for another model, got 'coreset'" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_a_row_is_what_the_rival_says(name, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    query, normal, abnormal = (torch.randn(*shape, 4, 6, 8, generator=generator) for shape in ((), (2,), (1,)))
    marked = torch.zeros(1, 4, 6, dtype=torch.bool)
    marked[0, 1, 1] = True
    rival = make_rival(name, 8, SETTINGS[name])
    calls = []
    encode = rival.encode
    monkeypatch.setattr(rival, "encode", lambda references: calls.append(1) or encode(references))
    method, context = RivalMethod(rival), Context(normal, abnormal, marked)
    with torch.no_grad():
        scores = [method(Query(query.flatten(0, 1), context, (4, 6))) for _ in range(2)]
        expected = rival.score(query, encode(gather_references(normal, abnormal, marked))).flatten()
    assert len(calls) == 1
    np.testing.assert_allclose(scores[0], expected, rtol=1e-5)  # its layers may be computed by another library
    np.testing.assert_array_equal(scores[1], scores[0])
