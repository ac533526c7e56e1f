"""The files of a Hub repository, and where they come from."""

import ast
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.dynamic_module_utils import get_imports

from modeling_ideal import __version__

HUB = Path(__file__).resolve().parent
ROOT = HUB.parent  # the root of the clone, or the data folder of an installed package
MODEL_CARD = ROOT / "model_card.md"

WEIGHTS, ONNX, CARD, RECORD = "model.safetensors", "backbone.onnx", "README.md", "build.json"
ENDPOINT = ("handler.py", "requirements.txt")  # copied from hub/
REQUIRED = {"config.json", "preprocessor_config.json", WEIGHTS, CARD, RECORD, *ENDPOINT}
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
    commit = _git("rev-parse", "HEAD")
    return f"{commit}-dirty" if _git("status", "--porcelain") else commit


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder except the record of the build, by path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).as_posix() != RECORD
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
