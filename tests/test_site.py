"""The site of docs/: it builds without a warning, opens from a folder, and loads nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import modeling_ideal

from .docs_pictures.__main__ import PICTURES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MOST_BYTES = 150_000  # of a picture
LOADED = r"<(?:script|img|iframe|source)\b[^>]*?\ssrc=[\"']?([^\"'\s>]+)|<link\b[^>]*?\shref=[\"']?([^\"'\s>]+)"
LINKED = r"<a\b[^>]*?\shref=[\"']?([^\"'\s>]+)"
NOT_IN_THE_REFERENCE = {"IDEAL_TINY", "__version__", "register"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    pytest.importorskip("zensical", reason="pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, folder / "docs")
    shutil.copytree(ROOT / "modeling_ideal", folder / "modeling_ideal", ignore=shutil.ignore_patterns("ideal_tiny"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stdout + built.stderr  # of the docstrings, which are no reason to stop
    return folder / "site"


def leads_nowhere(site, page, link):
    path = unquote(link.partition("#")[0].partition("?")[0])
    return bool(path) and not (page.parent / path).exists() and not (site / path.lstrip("/")).exists()


def test_every_page_loads_its_parts_from_the_site_and_links_to_what_is_there(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) == len(list(DOCS.rglob("*.md")))
    for page in pages:
        text = page.read_text()
        loaded = [first or second for first, second in re.findall(LOADED, text)]
        assert loaded
        assert not [link for link in loaded if re.match("(https?:)?//", link)], page.name
        links = [link for link in re.findall(LINKED, text) if not re.match("[a-z]+:", link)]
        assert not [link for link in [*loaded, *links] if leads_nowhere(site, page, link)], page.name


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"([\w/]+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted([*(path.name for path in DOCS.glob("*.md")), "results/README.md"])


def test_the_reference_has_every_public_name(site):
    text = (site / "api.html").read_text()
    headings = set(re.findall(r'id="(?:\w+\.)*(\w+)"', text))
    assert set(modeling_ideal.__all__) - NOT_IN_THE_REFERENCE <= headings
    assert "the share of good parts that may be called anomalous" in re.sub(r"\s+", " ", text)  # a docstring


def test_pictures_are_made_by_the_command_and_small():
    pictures = {str(path.relative_to(DOCS)): path for path in DOCS.rglob("*.jpg")}
    assert set(pictures) == set(PICTURES)
    assert not {name: path.stat().st_size for name, path in pictures.items() if path.stat().st_size > MOST_BYTES}
