"""The cost table: figures that can be explained by hand."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig

from modeling_ideal.backbone import build_backbone
from modeling_ideal.cli import main
from modeling_ideal.evaluation.cost import workload
from modeling_ideal.evaluation.cost.measurement import count_flops, measure_cost
from modeling_ideal.evaluation.cost.table import HEAD, cost_table
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.evaluation.cost.workload import noise, peak_memory
from modeling_ideal.evaluation.report.paper import COST

from ..conftest import PATCH, tiny_model

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak memory")

GRID, WIDTH, LAYERS = 8, 16, 2  # of the tiny model
PATCHES = GRID**2
VECTORS, NEIGHBORS, COMPONENTS = 5, 12, 4


def backbone_flops():
    """Two a multiply-add: patches, then in every layer four projections, two products of attention and the MLP."""
    tokens = PATCHES + 1
    embedding = 2 * PATCHES * WIDTH * 3 * PATCH**2
    projections = 4 * 2 * tokens * WIDTH**2
    attention = 2 * 2 * tokens**2 * WIDTH
    mlp = 2 * 2 * tokens * WIDTH * 4 * WIDTH
    return embedding + LAYERS * (projections + attention + mlp)


def scoring_flops(normal_patches):
    """What comes after the backbone for one query: matching, local PCA in k x k, projection."""
    matching = 2 * PATCHES * normal_patches * WIDTH
    inner = PATCHES * 2 * NEIGHBORS**2 * WIDTH  # among the neighbours, the residual in the place of the nearest
    centring = PATCHES * 2 * (2 * NEIGHBORS**3 + 2 * NEIGHBORS**2)
    subspace = PATCHES * 2 * 2 * NEIGHBORS * COMPONENTS
    projection = 2 * (PATCHES * WIDTH * VECTORS + VECTORS**2 * WIDTH + PATCHES * VECTORS**2)
    return matching + inner + centring + subspace + projection + upsampling_flops()


def upsampling_flops():
    """Patch scores to pixels, one side after the other."""
    side = GRID * PATCH
    return 2 * side * GRID**2 + 2 * side**2 * GRID


@pytest.fixture
def no_memory(monkeypatch, tmp_path):
    """As on another system than Linux; processes of their own take their time."""
    monkeypatch.setattr(workload, "CLEAR_REFS", tmp_path / "missing")


@pytest.fixture
def cost(no_memory):
    return measure_cost({"tiny": tiny_model()}, ["N1A1", "N2A1", "N1A0"], rounds=1)


def test_flops_of_the_backbone_are_those_counted_by_hand(model):
    assert count_flops(lambda: model.backbone(noise(model, 1, 1).query)) == backbone_flops()


def test_flops_of_a_query_are_those_counted_by_hand(cost):
    setups = cost["models"]["tiny"]["setups"]
    for setup, normal in (("N1A1", 1), ("N2A1", 2)):
        flops = setups[setup]["references_once"]["flops"]
        assert flops == backbone_flops() + scoring_flops(normal * PATCHES)
        again = setups[setup]["references_every_time"]["flops"]
        # Encoding again: the backbone for each reference, and less than another query's scoring for the encoder.
        images = (normal + 1) * backbone_flops()
        assert images < again - flops < images + scoring_flops(normal * PATCHES)
    matching = 2 * PATCHES**2 * WIDTH  # all that remains without abnormal references
    assert setups["N1A0"]["references_once"]["flops"] == backbone_flops() + matching + upsampling_flops()


def test_parameters(cost):
    model, tiny = tiny_model(), cost["models"]["tiny"]
    assert tiny["trained_parameters"] == sum(weight.numel() for weight in model.deviation_encoder.parameters())
    backbone = sum(weight.numel() for weight in model.backbone.parameters())
    assert tiny["parameters"] == tiny["trained_parameters"] + backbone


def test_frames_are_counted_in_turns():
    order = []
    seconds = interleaved_medians({name: lambda name=name: order.append(name) for name in "ab"}, rounds=2)
    assert order == ["a", "b"] * 3  # the first time warms up
    assert set(seconds) == {"a", "b"}


@linux
def test_every_figure_is_there():
    measured = measure_cost({"tiny": tiny_model()}, ["N1A1"], rounds=2)
    for figures in measured["models"]["tiny"]["setups"]["N1A1"].values():
        assert figures["frames_per_second"] > 0
        assert figures["peak_mebibytes"] > 50
    assert " - |" not in cost_table(measured).splitlines()[2]


@linux
def test_memory_is_what_the_process_holds(model_folder):
    ours = peak_memory(model_folder, 1, 1, None)
    assert 50 < ours < 5000  # Python and torch, and a model of nothing
    fat = "import numpy; fat = numpy.ones(50 * 2**20 // 8 * 4)"  # 200 MiB
    code = f"{fat}; import runpy, sys; sys.argv[1:] = {[str(model_folder), '1', '1']!r}; "
    code += "runpy.run_module('modeling_ideal.evaluation.cost.workload', run_name='__main__')"
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout.splitlines()[-1]) - ours == pytest.approx(200, abs=60)


def test_where_the_system_does_not_tell_there_is_no_memory(cost, model_folder):
    assert peak_memory(model_folder, 1, 1, None) is None
    assert cost_table(cost).splitlines()[2].endswith("| - |")


def test_a_process_that_fails_says_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"expected exit code 0, got 1: .*OSError"):
        peak_memory(tmp_path / "nothing", 1, 1, None)


def test_noise_has_the_references_of_the_setup(model):
    shapes = [None if part is None else tuple(part.shape) for part in noise(model, 2, 0)]
    assert shapes == [(1, 3, 32, 32), (2, 3, 32, 32), None, None]
    images = noise(model, 0, 3)
    assert images.normal_refs is None
    assert images.masks.flatten(1).sum(1).tolist() == [64, 64, 64]
    assert torch.equal(noise(model, 1, 1).query, noise(model, 4, 2).query)


def test_the_table(cost):
    lines = cost_table(cost).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:-2]]
    assert len(rows) == 3 * 2 + len(COST)
    assert rows[0][:6] == ["tiny", "N1A1", "encoded once", "0.01", "0.00", "0.00"]
    assert rows[1][:3] == ["tiny", "N1A1", "encoded for every query"]
    assert rows[-1] == ["IDEAL, paper", "-", "-", "23.83", "-", "12.70", "21.90", "-"]
    assert {len(row) for row in rows} == {len(HEAD)}
    assert "eigenvectors, top-k and element-wise work are not counted" in lines[-1]


def test_the_command(no_memory, model_folder, tmp_path, capsys):
    tiny_model(num_deviation_vectors=7).save_pretrained(tmp_path / "other")
    arguments = ["cost", "--setups", "N1A1", "--rounds", "1"]
    assert main([*arguments, "--model", str(model_folder), str(tmp_path / "other"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["models"]) == {model_folder.name, "other"}
    assert main([*arguments, "--model", str(model_folder), str(model_folder)]) == 3
    assert f"expected models of different names, got {model_folder.name!r} twice" in capsys.readouterr().err
    backbone = AutoConfig.for_model(
        "dinov2", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, patch_size=56, image_size=448
    )
    build_backbone(backbone).save_pretrained(tmp_path / "backbone")
    assert main([*arguments, "--backbone", str(tmp_path / "backbone"), "--stage", "stage1", "--no-norm"]) == 0
    assert "| backbone |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": {}}, r"expected at least one model and one set-up, got \[\] and"),
        ({"setups": []}, r"expected at least one model and one set-up, got \['tiny'\] and \[\]"),
        ({"setups": ["A1"]}, "expected a set-up such as 'N1A1' or 'N8A4', got 'A1'"),
        ({"rounds": 0}, "rounds: expected at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(model, changes, message):
    with pytest.raises(ValueError, match=message):
        measure_cost(**{"models": {"tiny": model}, "setups": ["N1A1"], "rounds": 1, **changes})


def test_the_command_does_not_need_datasets():
    code = "import sys; import modeling_ideal.evaluation.cost.command; print('datasets' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
