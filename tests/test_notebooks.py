"""The notebooks: kept with what they show, and running from a copy."""

import base64
import re
import shutil

import nbformat
import pytest

from .notebooks import NOTEBOOKS, clean, execute

MOST_BYTES = 700_000
NAMES = ["01_quick_start", "02_your_own_parts", "03_train_and_evaluate", "04_inside_the_method"]
# A folder of a machine, in whatever form; the paths that notebooks show are relative.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(tmp|home|root|work|usr|opt|var|Users|private)/|\b[A-Z]:\\\\|ipykernel_\d|0x[0-9a-f]{8}"
)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook):
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == NAMES


@each_notebook
def test_it_is_kept_with_what_it_shows(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert [cell.execution_count for cell in code_cells(notebook)] == [*range(1, len(code_cells(notebook)) + 1)]
    assert not [cell.id for cell in code_cells(notebook) if any("ename" in output for output in cell.outputs)]
    assert len(pictures(notebook)) >= 2
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures(notebook))


@each_notebook
def test_it_tells_nothing_of_the_machine_it_ran_on(path):
    notebook = nbformat.read(path, as_version=4)
    assert not MACHINE_PATH.search(nbformat.writes(without_pictures(notebook)))


def without_pictures(notebook):
    """The notebook without base64, in which anything may occur."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            output.get("data", {}).pop("image/png", None)
    return notebook


@pytest.mark.parametrize(
    "text",
    ["/var/parts/a.png", "'/home/ann/a.png'", "C:\\\\Users\\\\ann", "ipykernel_123", "<object at 0x7f00deadbeef>"],
)
def test_traces_of_a_machine_are_found(text):
    assert MACHINE_PATH.search(text)


@each_notebook
def test_it_runs_from_a_copy_and_shows_as_many_pictures(path, tmp_path):
    copy = tmp_path / path.name
    shutil.copyfile(path, copy)
    kept, notebook = nbformat.read(path, as_version=4), clean(execute(copy, tmp_path))
    assert len(pictures(notebook)) == len(pictures(kept))
    assert {item.name for item in tmp_path.iterdir()} <= {path.name, "datasets_cache"}  # it leaves nothing behind
