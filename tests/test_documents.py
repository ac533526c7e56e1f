"""What the documents claim runs: every Python snippet of README, model card and documents, and fine-tuning."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import AutoConfig, AutoModel

from modeling_ideal.backbone import build_backbone
from modeling_ideal.cli import main

from .evaluation.conftest import save_part

ROOT = Path(__file__).resolve().parents[1]
HUB_MODEL = "org/ideal"  # a repository of a tiny model stands in
HUB_BACKBONE = "facebook/dinov2-small"  # cannot be had offline; a small random one of its kind stands in


def snippets(name):
    text = (ROOT / name).read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A folder with the pictures and the backbone that the snippets speak of."""
    random = np.random.default_rng(0)
    for name in ("good_1.png", "good_2.png", "scratched.png", "part.png"):
        Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(tmp_path / name)
    mask = np.zeros((60, 80), np.uint8)
    mask[20:30, 30:50] = 255
    Image.fromarray(mask).save(tmp_path / "scratched_mask.png")
    config = AutoConfig.for_model(
        "dinov2", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=56
    )
    build_backbone(config).save_pretrained(tmp_path / "backbone")
    for kind in ("train", "good", "scratch", "hole"):
        for index in range(3):
            save_part(tmp_path / "path" / "to" / "mvtec", "nut", kind, str(index), random)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    (tmp_path / "hub").symlink_to(ROOT / "hub")  # the documents speak from the root of the repository
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_readme_snippets_run(workshop):
    found = snippets("README.md")
    assert found
    for snippet in found:
        snippet = snippet.replace(HUB_BACKBONE, str(workshop / "backbone"))
        exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102 - our own document


@pytest.mark.parametrize("document", ["README.md", "docs/training.md"])
def test_the_fine_tuning_command_runs_on_ten_normal_and_three_abnormal_pictures(workshop, document, capsys):
    mask = np.zeros((32, 32), np.uint8)
    mask[8:16, 8:20] = 255
    for kind, count in (("normal", 10), ("abnormal", 3), ("masks", 3)):
        Path("my_parts", kind).mkdir(parents=True)
        for index in range(count):
            noise = np.random.default_rng((count, index)).integers(0, 256, (32, 32), dtype=np.uint8)
            Image.fromarray(mask if kind == "masks" else noise).save(f"my_parts/{kind}/{index}.png")
    text = (ROOT / document).read_text().replace("\\\n", " ")
    [command] = re.findall(r"^ideal (train .*)$", text, re.MULTILINE)
    assert main(shlex.split(command)) == 0
    said = capsys.readouterr().out
    assert "Fine-tuned on my_parts (1 category: 10 normal and 3 anomalous pictures): 200 episodes in 2 epochs" in said
    assert "2 of its 10 normal pictures are queries" in said
    assert "The model is in my_model/model" in said
    assert AutoModel.from_pretrained("my_model/model").config.num_deviation_vectors == 45


@pytest.mark.parametrize("name", ["model_card.md", "docs/hub.md"])
def test_snippets_around_the_hub_run(name, workshop, repository, modules_cache):
    found = snippets(name)
    assert found
    for snippet in found:
        snippet = snippet.replace(HUB_MODEL, str(repository))
        exec(compile(snippet, name, "exec"), {})  # noqa: S102 - our own document


def test_the_readme_names_only_targets_that_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text()))
    assert named
    assert named <= targets
