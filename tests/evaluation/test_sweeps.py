"""Sweeps: one setting at a time, the same run never twice, measured on held-out categories."""

import json

import pytest

from modeling_ideal import IdealConfig
from modeling_ideal.evaluation.sweeps import DEFAULTS, SWEEPS, change_arguments, main, run_sweeps

from ..training.conftest import TINY, backbone_folder, options, options_in, source  # noqa: F401 - fixtures


def test_every_sweep_passes_the_papers_setting():
    for name, points in SWEEPS.items():
        if name in ("stage", "stages together", "epochs"):
            continue
        settings = [{**DEFAULTS, **change} for change in points.values()]
        for each in settings:
            IdealConfig(**each)  # or a long sweep would stop half-way
        assert DEFAULTS in settings, name
        assert len({json.dumps(each, sort_keys=True) for each in settings}) == len(points), name


def test_points_with_the_same_settings_share_a_run(options, tmp_path):  # noqa: F811
    base = options(config=["num_deviation_vectors=45"])
    paper = change_arguments(base, {}, tmp_path)
    assert change_arguments(base, {"num_neighbors": 12}, tmp_path) == paper
    assert change_arguments(base, {"alignment": "cosine", "erase_strength": 0.8}, tmp_path) == paper
    other = change_arguments(base, {"num_neighbors": 4, "stage": "stage2"}, tmp_path)
    assert (other.stage, other.config) == ("stage2", ["num_neighbors=4"])
    longer = change_arguments(base, {"epochs": base.epochs + 1}, tmp_path)
    assert (longer.epochs, longer.config) == (base.epochs + 1, [])
    assert change_arguments(base, {"epochs": base.epochs}, tmp_path) == paper
    assert len({paper.output_dir, other.output_dir, longer.output_dir}) == 3


def test_a_sweep_measures_each_point_and_goes_on_where_it_was(options, tmp_path):  # noqa: F811
    base = options(held_out=["bolt"], epochs=1, episodes_per_epoch=4)
    record = run_sweeps(base, ["residual anchor"], tmp_path / "sweeps")
    points = record["sweeps"]["residual anchor"]
    assert list(points) == ["nearest", "centroid"]
    assert points["nearest"] != points["centroid"]
    assert all(0 <= point["N1A1"]["image_auroc"] <= 100 for point in points.values())
    assert (tmp_path / "sweeps" / "residual_anchor_N1A1.png").stat().st_size > 5000
    assert str(tmp_path) not in (tmp_path / "sweeps" / "sweeps.json").read_text()
    trained = {file: file.stat().st_mtime_ns for file in (tmp_path / "sweeps" / "runs").rglob("training.json")}
    assert len(trained) == 2
    assert run_sweeps(base, ["residual anchor"], tmp_path / "sweeps") == record
    assert trained == {file: file.stat().st_mtime_ns for file in trained}


def test_what_is_missing_is_said(options, capsys, tmp_path):  # noqa: F811
    with pytest.raises(ValueError, match=r"sweeps: expected some of .*, got \['colour'\]"):
        run_sweeps(options(held_out=["bolt"]), ["colour"], tmp_path)
    words = ["--source", "parts", "--backbone", "b", "--output_dir", str(tmp_path), "--config", *TINY]
    assert main(words) == 3
    assert "expected categories of the source to measure on, got no --held_out" in capsys.readouterr().err
