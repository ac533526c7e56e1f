"""What the documents say is true: snippets and commands run, links lead somewhere, files and modules exist."""

import os
import pkgutil
import re
import shlex
import subprocess
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from transformers import AutoConfig, AutoModel

from modeling_ideal.backbone import build_backbone
from modeling_ideal.cli import build_parser, main
from modeling_ideal.saving import shipped_files

from .evaluation.conftest import save_part

ROOT = Path(__file__).resolve().parents[1]
GIT = ["git", "-C", str(ROOT)]


def tracked_files():
    """Every file of the repository; in an unpacked archive, which has no index, every file that is there."""
    if not (ROOT / ".git").exists():
        return {str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()}
    listed = subprocess.run([*GIT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    return set(filter(None, listed.stdout.split("\0")))


TRACKED = tracked_files()
DOCUMENTS = sorted(name for name in TRACKED if name.endswith(".md") and not name.startswith("."))
PRESENT = [name for name in DOCUMENTS if name != "CHANGELOG.md"]  # which also names what is gone
DAILY = ("demo", "references", "detect", "watch", "explain", "references", "references", "data")
HUB_MODEL = "org/ideal"  # a repository of a tiny model stands in
HUB_BACKBONE = "facebook/dinov2-small"  # not available offline; a small random one of its kind stands in


def read(name):
    return (ROOT / name).read_text()


def snippets(name):
    return re.findall(r"```python\n(.*?)```", read(name), re.DOTALL)


def commands(name):
    """The `ideal` commands in the code blocks of a document, as lists of arguments; `ideal train` also as a module."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", read(name), re.DOTALL)).replace("\\\n", " ")
    blocks = re.sub(r".*-m modeling_ideal\.training\.train ", "ideal train ", blocks)
    lines = re.findall(r"^ *ideal (.*)$", blocks, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines if "$" not in line]  # $ needs a shell


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
    names += ("good/a.png", "good/b.png", "bad/c.png", "line_3/d.png", "line_3/e.png", "missed.png")
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


def test_what_the_readme_shows_first_runs_as_it_stands(workshop, capsys):
    daily = [words for words in commands("README.md") if words[0] in DAILY]
    assert tuple(words[0] for words in daily) == DAILY
    for words in daily:
        once = ["--once"] if words[0] == "watch" else []  # otherwise it runs until Ctrl-C
        allowed = (0, 1) if words[0] in ("detect", "watch") else (0,)  # with anomalies, or without
        assert main([*words, *once]) in allowed, words
    said = capsys.readouterr().out
    assert int(re.search(r"(\d+) of 22 right", said)[1]) >= 19, said
    assert "line_3/e.png" in said
    assert {path.name for path in Path("found/overlays").iterdir()} == {"d.png", "e.png"}
    run_snippets("README.md", {HUB_BACKBONE: workshop / "backbone"})
    said = capsys.readouterr().out
    assert re.search(r"query_00.png normal score .*\nquery_03.png anomalous score ", said)
    assert Path("overlay_of_query_00.png").is_file()
    assert Path("overlay_of_query_03.png").is_file()


@pytest.mark.parametrize("name", ["README.md", "model_card.md", "docs/hub.md"])
def test_no_snippet_judges_its_own_references(name):
    judged = re.findall(r"(?:pipe\(|query=|\"inputs\": )\s*(\[[^]]*\]|\"[^\"]*\")", "".join(snippets(name)))
    assert judged
    for queries in judged:
        assert not re.search("good|normal|scratched", queries), queries


def test_data_snippets_run(workshop):
    run_snippets("docs/data.md", {})


@pytest.mark.parametrize("name", ["model_card.md", "docs/hub.md"])
def test_snippets_around_the_hub_run(name, workshop, repository, modules_cache):
    run_snippets(name, {HUB_MODEL: repository})


def test_the_fine_tuning_command_runs_on_ten_normal_and_three_abnormal_pictures(workshop, capsys):
    for kind, count in (("normal", 10), ("abnormal", 3), ("masks", 3)):
        for index in range(count):
            path = Path("my_parts", kind, f"{index}.png")
            save_mask(path, (32, 32)) if kind == "masks" else save_noise(path, (count, index), (32, 32))
    [command] = [words for words in commands("README.md") if words[0] == "train"]
    assert command in commands("docs/training.md")
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Fine-tuned on my_parts (1 category: 10 normal and 3 anomalous pictures): 200 episodes in 2 epochs" in said
    assert "2 of its 10 normal pictures serve as queries" in said
    assert "ideal evaluate --model my_model/model" in said
    assert AutoModel.from_pretrained("my_model/model").config.num_deviation_vectors == 45


@pytest.mark.parametrize("name", PRESENT)
def test_every_command_is_understood(name):
    for words in commands(name):
        build_parser().parse_args(words)  # exits if it is not


def test_the_commands_of_a_document_are_found():
    assert {words[0] for words in commands("README.md")} >= {"demo", "train", "evaluate", "build", "push", "export"}
    assert ["data", "check", "path/to/mvtec"] in commands("docs/data.md")
    assert [words[0] for words in commands("docs/training.md")].count("train") == 5


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/results/README.md"])
def test_named_make_targets_exist(name):
    targets = set(re.findall(r"^(\w+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make (\w+)", read(name), re.MULTILINE))
    assert named
    assert named <= targets


def headings(text):
    """The anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


LINKS = (
    r"\]\(<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)",  # [text](link "title"), and pictures
    r"^\[[^\]]+\]:\s+<?([^\s>]+)",  # [name]: link
    r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=[\"']([^\"']+)[\"']",
)


def broken_links(name, text):
    """The relative links of a document that lead to no tracked file or folder, or to no heading of it."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)  # code is not a link
    broken = []
    for link in (link for pattern in LINKS for link in re.findall(pattern, text, re.MULTILINE)):
        if re.match(r"[a-z]+:", link):
            continue  # on the web
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), unquote(path))) if path else name
        there = target in TRACKED or any(file.startswith(f"{target}/") for file in TRACKED) or target == "."
        if not there or (anchor and anchor not in headings(text if target == name else read(target))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    assert broken_links(name, read(name)) == []


def test_broken_links_are_found():
    kept_out = ROOT / "docs" / "results" / "untracked.json"  # there, perhaps, but not in the repository
    text = f"""# A heading

[good](../data.md) [good](../data.md#masks) [here](#a-heading) [folder](mpdd_tiny) ![good](../overview.svg "title")
[web](https://example.org/none) `[code](none)` <img src="../overview.svg"> [root](../..)

[kept out]({kept_out.name}) [anchor](../data.md#none) [here](#none) ![picture](none.png) [title](none.md "title")
<img alt="x" src="none.svg"> <a href='none.html'>x</a>

[named]: none.txt
"""
    expected = ["untracked.json", "../data.md#none", "#none", "none.png", "none.md", "none.txt"]
    assert broken_links("docs/results/README.md", text) == [*expected, "none.svg", "none.html"]


def test_the_record_of_a_benchmark_is_not_kept_out():
    command = [*GIT, "check-ignore", "--no-index", "benchmarks.json", "docs/results/benchmarks.json"]
    ignored = subprocess.run(command, capture_output=True, text=True, check=False)
    if ignored.returncode not in (0, 1):
        pytest.skip("not a clone")
    assert ignored.stdout.split() == ["benchmarks.json"]  # a run of one's own, in the root


@pytest.mark.parametrize("name", PRESENT)
def test_named_files_and_modules_exist(name):
    text = read(name)
    for path in re.findall(r"(?<![\w/.])(?:modeling_ideal|tests|hub|docs)/[\w./-]*\w/?", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"(?<![\w/.])(?:modeling_ideal|tests)(?:\.(?!py\b)\w+)+", text):
        pkgutil.resolve_name(module)  # raises if it is not there


def test_the_way_of_a_picture_names_every_file_of_the_root_once():
    [way] = re.findall(r"^## The way of a picture\n(.*?)^## ", read("CONTRIBUTING.md"), re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(\w+\.py)`", way)
    assert sorted(named) == sorted(path.name for path in shipped_files())


def test_the_drawing_names_every_file_of_the_root():
    words = set(re.findall(r"\w+", read("docs/overview.svg")))
    assert {path.stem for path in shipped_files()} <= words
