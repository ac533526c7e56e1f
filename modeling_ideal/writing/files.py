"""Files that are whole or not there: written under a temporary name, then renamed."""

import json
import math
import os
import secrets
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPORARY = ".partial"
_ABANDONED_SECONDS = 24 * 3600


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file in one step: another process, or the next one after a kill, sees all of it or none."""
    # The name is this writer's own, so two processes that write the same file do not disturb each other.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_TEMPORARY}")
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # else a power cut could leave the new name on an empty file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON in one step; NaN, which JSON does not have, becomes null."""
    write_atomically(path, (json.dumps(_without_nan(content), indent=2, ensure_ascii=False) + "\n").encode())


def write_figure(path: Path, figure: "Figure", texts: dict[str, str] | None = None) -> None:
    """Write a Matplotlib figure as a PNG file in one step, without date and version: the same figure, the same file.

    Args:
        path: of the file.
        figure: drawn without pyplot.
        texts: kept in the file, by keyword.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None, **(texts or {})})
    write_atomically(path, buffer.getvalue())


def remove_abandoned(folder: Path) -> None:
    """Delete what killed writers left below a folder, once it is too old to belong to a living one."""
    for temporary in folder.rglob(f"*{_TEMPORARY}"):
        try:
            if time.time() - temporary.stat().st_mtime > _ABANDONED_SECONDS:
                temporary.unlink()
        except FileNotFoundError:
            continue  # its writer has just renamed it


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content
