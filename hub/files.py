"""What a Hub repository of IDEAL holds, and how the source of it is found."""

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from transformers.dynamic_module_utils import get_imports, get_relative_import_files

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "modeling_ideal"

ENTRIES = ("configuration_ideal", "image_processing_ideal", "modeling_ideal", "pipeline_ideal")  # read by transformers
WEIGHTS, ONNX, CARD, RECORD = "model.safetensors", "backbone.onnx", "README.md", "build.json"
ENDPOINT = ("handler.py", "requirements.txt")  # from hub/, as they are
REQUIRED = {"config.json", "preprocessor_config.json", WEIGHTS, CARD, RECORD, *ENDPOINT}
LIBRARIES = {"PIL", "numpy", "onnxruntime", "safetensors", "torch", "transformers"}


def shipped_sources(onnx: bool = False) -> list[Path]:
    """The flat files that ship, by the rule that transformers loads them by: entry files and what they import."""
    entries = [PACKAGE / f"{name}.py" for name in (*ENTRIES, *(["onnx_backbone"] if onnx else []))]
    imported = [Path(path) for entry in entries for path in get_relative_import_files(entry)]
    return sorted({*entries, *imported})


def check_imports(sources: Iterable[Path]) -> None:
    """ValueError for a source that would not load as remote code: flat relative imports and a few libraries only."""
    for source in sources:
        if others := sorted(set(get_imports(source)) - LIBRARIES - sys.stdlib_module_names):
            raise ValueError(f"{source.name}: expected imports of {sorted(LIBRARIES)} alone, got {others}")
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                name = node.module or ""
                if node.level > 1 or not name.isidentifier():
                    raise ValueError(
                        f"{source.name}: expected relative imports `from .name import X`, "
                        f"got `from {'.' * node.level}{name} import ...` in line {node.lineno}"
                    )


def source_commit() -> str | None:
    """The commit of this clone; `<commit>-dirty` with changes that are in none, None without git."""
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}-dirty" if _git("status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder but the record of the build, by path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).as_posix() != RECORD
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
