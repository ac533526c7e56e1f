"""What is installed is what was tested: pins, hashes and lowest versions agree."""

import re
from pathlib import Path

from .lock import BY_VERSION_ALONE, HEAD, LOCK, lock
from .minimum import minimums

ROOT = Path(__file__).resolve().parents[1]
REPORT = {
    "install": [
        {"metadata": {"name": name, "version": "1.0"}, "download_info": {"archive_info": {"hashes": {"sha256": "ab"}}}}
        for name in ("torch", "b", "A", "modeling-ideal")
    ]
}


def pinned(text):
    """The versions of a file of requirements, by normalised name."""
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}


def test_the_lock_has_the_versions_of_the_constraints_and_a_hash_for_each():
    """If this fails, constraints.txt was changed: `make lock`."""
    locked, constraints = pinned(LOCK.read_text()), pinned((ROOT / "constraints.txt").read_text())
    tools = {"torch", "pip"}  # by version alone; installs the others
    assert {name: version for name, version in constraints.items() if name not in tools} == {
        name: version for name, version in locked.items() if name in constraints
    }
    entries = LOCK.read_text().removeprefix(HEAD).splitlines()
    assert all(re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


def test_a_lock_is_made_from_what_pip_says():
    assert lock(REPORT) == f"{HEAD}A==1.0 --hash=sha256:ab\nb==1.0 --hash=sha256:ab\n"
    assert "torch" in BY_VERSION_ALONE


def test_the_lowest_versions_are_those_of_pyproject():
    lowest = dict(line.split("==") for line in minimums())
    assert tuple(lowest) == ("torch", "transformers", "safetensors", "numpy", "Pillow")
    constraints = pinned((ROOT / "constraints.txt").read_text())
    for name, version in lowest.items():
        assert [*map(int, version.split("."))] <= [*map(int, constraints[name.lower()].split("."))], name
