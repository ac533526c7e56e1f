"""Executes the notebooks and keeps what they show: `python -m tests.notebooks`, which `make notebooks` calls."""

import os
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 1200  # for one cell, on a machine that is busy with other things
# A warning in a notebook names the file that the kernel made of its cell, and repeats the line.
_PLACE_OF_WARNING = re.compile(r"^\S*ipykernel_\d+\S*\.py:\d+: (\w+): (.*\n)(?:  .*\n?)?", re.MULTILINE)

# tqdm misses a widget that nothing here needs, and names the place of its own file.
_NO_WIDGETS = re.compile(r"^.*TqdmWarning: IProgress not found.*\n(?:  .*\n?)?", re.MULTILINE)

_SPEED = re.compile(r"; [\d.]+ pictures a second")


def execute(path: Path, folder: Path) -> NotebookNode:
    """Execute a notebook in a folder, with this interpreter and this package; an error in a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets_cache"),
        "HF_HUB_OFFLINE": "1",
        "ACCELERATE_USE_CPU": "true",
    }
    with mock.patch.dict(os.environ, environment):
        NotebookClient(
            notebook,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    return notebook


def clean(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what differs from run to run: times, names of the machine's files, identifiers."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs with the pieces of a stream joined, which arrive as chance has it, and warnings without their place."""
    joined: list[NotebookNode] = []
    for output in outputs:
        output.get("metadata", {}).clear()
        output.get("data", {}).pop("image/jpeg", None)  # of a PIL image, which is there as PNG too
        if joined and output.output_type == "stream" and output.get("name") == joined[-1].get("name"):
            joined[-1].text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = _SPEED.sub("", _PLACE_OF_WARNING.sub(r"\1: \2", _NO_WIDGETS.sub("", output.text)))
    return [output for output in joined if output.get("text") != ""]


def main() -> None:
    """Execute the notebooks in place, or those whose names are given."""
    names = sys.argv[1:] or [path.name for path in NOTEBOOKS]
    for path in (ROOT / "notebooks" / name for name in names):
        with tempfile.TemporaryDirectory() as folder:
            notebook = clean(execute(path, Path(folder)))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
