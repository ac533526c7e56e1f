"""What the documents show runs: commands and snippets, with small stand-ins for what a test does not have."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import AutoConfig, AutoModel

from modeling_ideal import IdealImageProcessor
from modeling_ideal.backbone import build_backbone
from modeling_ideal.cli import main

from .conftest import PATCH, tiny_model
from .evaluation.conftest import save_part
from .test_documents import DAILY, ROOT, commands, snippets

PAGES = ("docs/quick_start.md", "docs/references.md", "docs/calibration.md", "docs/line.md")  # of daily work too
HUB_MODEL = "org/ideal"  # a repository of a tiny model stands in
HUB_BACKBONE = "facebook/dinov2-small"  # not available offline; a small random one of its kind stands in


def run_snippets(name, stand_ins):
    found = snippets(name)
    assert found
    for snippet in found:
        for hub_name, folder in stand_ins.items():
            snippet = snippet.replace(hub_name, str(folder))
        exec(compile(snippet, name, "exec"), {})  # noqa: S102 - our own document


def save_noise(path, seed, size=(60, 80, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)).save(path)


def save_mask(path, size=(60, 80)):
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = np.zeros(size, np.uint8)
    mask[8:16, 8:20] = 255
    Image.fromarray(mask).save(path)


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A folder with the pictures, data sets and backbones that the documents speak of."""
    names = ("good_1.png", "good_2.png", "scratched.png", "part.png", "part_1.png", "part_2.png")
    names += ("normal/a.png", "normal/b.png", "abnormal/c.png", "line_3/d.png", "line_3/e.png", "camera/f.png")
    names += ("missed.png", "false_alarm.png")
    for seed, name in enumerate(names):
        save_noise(tmp_path / name, seed)
    for name in ("scratched_mask.png", "masks/c_mask.png", "missed_mask.png"):
        save_mask(tmp_path / name)
    config = AutoConfig.for_model(
        "dinov2", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=56
    )
    build_backbone(config).save_pretrained(tmp_path / "backbone")
    random = np.random.default_rng(0)
    for kind in ("train", "good", "scratch", "hole"):
        for index in range(3):
            save_part(tmp_path / "path" / "to" / "mvtec", "nut", kind, str(index), random)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    (tmp_path / "hub").symlink_to(ROOT / "hub")  # the documents speak from the root of the repository
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_model(workshop):
    """A model that is even smaller than ideal-tiny, as the folder `small`: for what need not be told apart."""
    tiny_model(num_deviation_vectors=3).save_pretrained("small")
    IdealImageProcessor(size=8 * PATCH, patch_size=PATCH).save_pretrained("small")
    return "small"


def run_commands(document, extra=()):
    """Run the commands of daily work in a document, and return them; all must succeed, with anomalies or without."""
    daily = [words for words in commands(document) if words[0] in DAILY and "--ray" not in words]  # see test_ray.py
    for words in daily:
        once = ["--once"] if words[0] == "watch" else []  # otherwise it runs until Ctrl-C
        model = [] if "--show" in words else extra
        assert main([*words, *once, *model]) in ((0, 1) if words[0] in ("detect", "watch") else (0,)), words
    return [words[0] for words in daily]


def test_what_the_readme_shows_first_runs_as_it_stands(workshop, capsys):
    assert tuple(run_commands("README.md")) == DAILY
    said = capsys.readouterr().out
    assert int(re.search(r"(\d+) of 22 right", said)[1]) >= 19, said
    assert "line_3/e.png" in said
    assert {path.name for path in Path("found/overlays").iterdir()} == {"d.png", "e.png"}
    run_snippets("README.md", {})
    said = capsys.readouterr().out
    assert re.search(r"query_00.png normal score .*\nquery_03.png anomalous score ", said)
    assert Path("overlay_of_query_00.png").is_file()
    assert Path("overlay_of_query_03.png").is_file()


@pytest.mark.parametrize("name", PAGES)
def test_what_the_pages_of_daily_work_show_runs(name, workshop, small_model, monkeypatch):
    model = ["--model", small_model]
    assert main(["references", "--normal", "normal", "--out", "product.safetensors", *model]) == 0
    monkeypatch.setattr("modeling_ideal.cli.demo._demo", lambda _: 0)  # README's
    assert run_commands(name, model)
    if snippets(name):
        run_snippets(name, {'pipeline("anomaly-detection")': f'pipeline("anomaly-detection", model="{small_model}")'})


def test_the_snippets_of_the_method_run(workshop):
    run_snippets("docs/method.md", {HUB_BACKBONE: workshop / "backbone"})


def test_the_snippet_of_the_distillation_runs(workshop):
    Path("backbone").rename("student")
    run_snippets("docs/distillation.md", {})
    assert AutoConfig.from_pretrained("small").image_size == 308


def test_the_snippets_of_training_run(workshop, small_model):
    Path("models/mvtec").mkdir(parents=True)
    Path(small_model).rename("models/mvtec/model")
    run_snippets("docs/training.md", {})
    assert AutoConfig.from_pretrained("models/ideal").alignment == "contrast"


def test_data_snippets_run(workshop):
    for words in commands("docs/data.md"):
        assert main(words) == 0, words
    run_snippets("docs/data.md", {})


@pytest.mark.parametrize("name", ["model_card.md", "docs/deployment.md"])
def test_snippets_around_the_hub_run(name, workshop, repository, modules_cache):
    run_snippets(name, {HUB_MODEL: repository})


def test_the_fine_tuning_command_runs_on_ten_normal_and_three_abnormal_pictures(workshop, capsys):
    for kind, count in (("normal", 10), ("abnormal", 3), ("masks", 3)):
        for index in range(count):
            path = Path("my_parts", kind, f"{index}.png")
            save_mask(path, (32, 32)) if kind == "masks" else save_noise(path, (count, index), (32, 32))
    [command] = [words for words in commands("docs/training.md") if "my_parts" in words]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Fine-tuned on my_parts (1 category: 10 normal and 3 anomalous pictures): 200 episodes in 2 epochs" in said
    assert "2 of its 10 normal pictures serve as queries" in said
    assert "ideal evaluate --model my_model/model" in said
    assert AutoModel.from_pretrained("my_model/model").config.num_deviation_vectors == 45
