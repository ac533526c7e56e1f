"""The files of a Hub repository, and where they come from."""

import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_imports

from modeling_ideal import __version__

HUB = Path(__file__).resolve().parent
ROOT = HUB.parent  # the root of the clone, or the data folder of an installed package
MODEL_CARD = ROOT / "model_card.md"

WEIGHTS, ONNX, CARD, RECORD = "model.safetensors", "backbone.onnx", "README.md", "build.json"
HANDLER = ("handler.py", "handler_fetch.py", "handler_pictures.py", "handler_requests.py")
ENDPOINT = (*HANDLER, "requirements.txt")  # copied from hub/
REQUIRED = {"config.json", "preprocessor_config.json", WEIGHTS, CARD, RECORD, *ENDPOINT}
DIRTY = "-dirty"  # at the end of a commit with uncommitted changes
REFERENCES = "references/"  # encoded reference sets for the endpoint may be added after the build
LIBRARIES = {"PIL", "numpy", "onnxruntime", "safetensors", "torch", "transformers"}


def check_imports(sources: Sequence[Path]) -> None:
    """Raise ValueError if a source file imports anything but other source files and a few libraries."""
    shipped = {source.stem for source in sources}
    for source in sources:
        if others := sorted(set(get_imports(source)) - LIBRARIES - sys.stdlib_module_names):
            raise ValueError(f"{source.name}: expected imports of {sorted(LIBRARIES)} only, got {others}")
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                name = node.module or ""
                if node.level > 1 or name not in shipped:
                    raise ValueError(
                        f"{source.name}: expected relative imports `from .name import X` of files that ship, "
                        f"got `from {'.' * node.level}{name} import ...` in line {node.lineno}"
                    )


def source_commit() -> str:
    """The commit of a clone, `<commit>-dirty` with uncommitted changes, or the version of an installed package."""
    if not (ROOT / ".git").exists():
        return __version__
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}{DIRTY}" if _git("status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise ValueError(f"expected git to name the commit of this clone, got: {str(reason).strip()}") from error


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder except the record of the build, by path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).as_posix() != RECORD
    }


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a build; ValueError unless the folder holds exactly what was built, and references."""
    if not (folder / RECORD).is_file():
        raise ValueError(f"{folder}: expected a folder made by `ideal build`, got one without {RECORD}")
    record = json.loads((folder / RECORD).read_text())
    built = {path: digest for path, digest in digests(folder).items() if not path.startswith(REFERENCES)}
    if differing := sorted({path for path, _ in built.items() ^ record["sha256"].items()}):
        raise ValueError(f"{folder}: expected the files as they were built, got others: {differing}")
    return record


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
