"""The rules of the house: what the listing shows is what holds."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import modeling_ideal
from modeling_ideal.aligned_memory import ALIGNMENT, align_weights, aligned

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path for folder in ("modeling_ideal", "hub", "tests") for path in (ROOT / folder).rglob("*.py") if path.is_file()
]
MOST_LINES = 300
IN_EITHER_ORDER = """
{first}
{second}
print(pipeline("anomaly-detection").model.name_or_path == modeling_ideal.IDEAL_TINY)
"""


def test_no_file_is_long():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {path: length for path, length in lengths.items() if length > MOST_LINES}


def test_every_module_says_what_it_is_for():
    missing = [
        path for path in SOURCES if path.stat().st_size and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not missing


def test_every_public_name_is_there_and_listed():
    for name in modeling_ideal.__all__:
        assert getattr(modeling_ideal, name) is not None
    assert {*modeling_ideal.__all__} <= {*dir(modeling_ideal)}
    with pytest.raises(AttributeError, match="module 'modeling_ideal' has no attribute 'IdealModell'"):
        _ = modeling_ideal.IdealModell


@pytest.mark.parametrize("order", [1, -1])
def test_the_pipeline_is_known_in_whatever_order_the_libraries_are_imported(order):
    first, second = ["import modeling_ideal", "from transformers import pipeline"][::order]
    script = IN_EITHER_ORDER.format(first=first, second=second)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_weights_from_a_file_are_aligned_and_the_same():
    whole = torch.arange(101, dtype=torch.float32)
    assert whole.data_ptr() % ALIGNMENT == 0
    assert aligned(whole) is whole
    view = whole[10:]  # 40 bytes on, where safetensors puts its first tensor
    assert view.data_ptr() % ALIGNMENT
    assert aligned(view).data_ptr() % ALIGNMENT == 0
    assert torch.equal(aligned(view), view)
    module = nn.Linear(7, 13, bias=False)
    module.weight = nn.Parameter(view.view(13, 7), requires_grad=False)
    align_weights(module)
    assert module.weight.data_ptr() % ALIGNMENT == 0
    assert torch.equal(module.weight, view.view(13, 7))


def test_models_and_references_are_aligned_after_loading(model, episode, tmp_path):
    references = model.encode_references(*(episode[name] for name in ("normal_refs", "abnormal_refs", "masks")))
    references.save(tmp_path / "product.safetensors")
    loaded = modeling_ideal.IdealReferences.load(tmp_path / "product.safetensors")
    model.save_pretrained(tmp_path / "model")
    again = modeling_ideal.IdealModel.from_pretrained(tmp_path / "model")
    tensors = [*again.parameters(), *loaded.normal_features, loaded.deviation_vectors, *loaded.abnormal_deviations]
    assert all(tensor.data_ptr() % ALIGNMENT == 0 for tensor in tensors)
    expected = model(episode["query"], references=references).patch_scores
    assert torch.equal(again(episode["query"], references=loaded).patch_scores, expected)
