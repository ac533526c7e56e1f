"""Files that are complete or not there: written under a temporary name, then renamed."""

import json
import math
import os
import secrets
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPORARY = ".partial"
_ABANDONED_SECONDS = 24 * 3600


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes, or the next run after a crash, see all of it or nothing."""
    # The name is unique, so that processes that write the same file do not interfere, and short: names have a limit.
    temporary = path.with_name(f".{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # otherwise a power cut could leave an empty file under the new name
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """The content of a JSON file; NaN, which JSON does not have, becomes null."""
    text = json.dumps(_without_nan(content), indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")  # file names may have bytes that are no text, escaped in JSON


def write_figure(path: Path, figure: "Figure | Image.Image", texts: dict[str, str] | None = None) -> None:
    """Write a figure as a PNG file atomically, without date and version, so that files are reproducible.

    Args:
        path: the file to write.
        figure: a Matplotlib figure made without pyplot, or a picture.
        texts: PNG text entries by keyword.
    """
    buffer = BytesIO()
    quick = {"compress_level": 3}  # a tenth larger, in less than half the time
    if isinstance(figure, Image.Image):
        entries = PngInfo()
        for keyword, text in (texts or {}).items():
            entries.add_text(keyword, text)
        figure.save(buffer, "PNG", pnginfo=entries, **quick)
    else:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None, **(texts or {})}, pil_kwargs=quick)
    write_atomically(path, buffer.getvalue())


def remove_abandoned(folder: Path) -> None:
    """Delete temporary files of killed processes below a folder, if they are too old to be still in use."""
    for temporary in folder.rglob(f"*{_TEMPORARY}"):
        try:
            if time.time() - temporary.stat().st_mtime > _ABANDONED_SECONDS:
                temporary.unlink()
        except FileNotFoundError:
            continue  # just renamed by the process that wrote it


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content
