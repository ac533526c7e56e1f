"""What the documents say is true: commands are understood, links lead somewhere, files and modules exist."""

import argparse
import os
import pkgutil
import re
import shlex
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from modeling_ideal.cli import build_parser
from modeling_ideal.cli.arguments import ALL_NORMAL, ANOMALIES, EXIT_CODES, INTERRUPTED, NOT_JUDGED, WRONG_USE
from modeling_ideal.saving import shipped_files

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
DAILY = ("demo", "references", "detect", "explain", "references", "watch")  # commands of README, in order


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


def test_the_first_screen_of_the_readme_is_a_sentence_a_picture_two_commands_and_ten_lines():
    first = read("README.md").split("\n## ")[0]
    title, sentence, picture, *rest = first.strip().split("\n\n")
    assert title == "# IDEAL"
    assert re.findall(r"[.!?](?=\s|$)", sentence) == ["."]
    assert re.fullmatch(r"!\[[^]]+\]\(docs/demo\.jpg\)", picture)
    assert re.findall("^```(\\w+)$", "\n\n".join(rest), re.MULTILINE) == ["bash", "python"]
    [shell] = re.findall(r"```bash\n(.*?)```", first, re.DOTALL)
    assert [shlex.split(line, comments=True)[:2] for line in shell.splitlines()] == [
        ["pip", "install"],
        ["ideal", "demo"],
    ]
    assert len([line for line in snippets("README.md")[0].splitlines() if line]) <= 10
    assert len(first.splitlines()) <= 30


JUDGING = ["README.md", "model_card.md", "docs/deployment.md", "docs/quick_start.md", "docs/calibration.md"]


@pytest.mark.parametrize("name", JUDGING)
def test_no_snippet_judges_its_own_references(name):
    judged = re.findall(r"(?:pipe\(|query=|\"inputs\": )\s*(\[[^]]*\]|f?\"[^\"]*\")", "".join(snippets(name)))
    assert judged
    for queries in judged:
        assert not re.search("good|normal|scratched", queries), queries


@pytest.mark.parametrize("name", PRESENT)
def test_every_command_is_understood(name):
    for words in commands(name):
        build_parser().parse_args(words)  # exits if it is not


def test_the_commands_of_a_document_are_found():
    assert {words[0] for words in commands("README.md")} >= {*DAILY, "evaluate", "cost"}
    assert {words[0] for words in commands("docs/deployment.md")} >= {"build", "push", "export"}
    assert ["data", "check", "path/to/mvtec"] in commands("docs/data.md")
    assert [words[0] for words in commands("docs/training.md")].count("train") == 5


def test_exit_codes_are_the_same_everywhere():
    [table] = re.findall(r"## Exit codes\n(.*?)\n## ", read("docs/quick_start.md"), re.DOTALL)
    [sentence] = re.findall(r"The exit code is (0 .*)\n", read("README.md"))
    codes = [str(code) for code in (ALL_NORMAL, ANOMALIES, NOT_JUDGED, WRONG_USE, INTERRUPTED)]
    assert codes == ["0", "1", "2", "3", "130"]
    assert re.findall(r"\b\d+\b", sentence) == codes
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == codes
    assert re.findall(r"^  (\d+)  ", EXIT_CODES, re.MULTILINE) == codes
    assert [name for name in ("detect", "watch") if EXIT_CODES in help_of(name)] == ["detect", "watch"]


def help_of(command):
    """What `ideal COMMAND --help` says."""
    [commands] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return commands.choices[command].format_help()


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
