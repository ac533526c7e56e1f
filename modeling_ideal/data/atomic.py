"""Files that are whole or not there: written under a temporary name, then renamed."""

import os
import secrets
import time
from pathlib import Path

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


def remove_abandoned(folder: Path) -> None:
    """Delete what killed writers left below a folder, once it is too old to belong to a living one."""
    for temporary in folder.rglob(f"*{_TEMPORARY}"):
        try:
            if time.time() - temporary.stat().st_mtime > _ABANDONED_SECONDS:
                temporary.unlink()
        except FileNotFoundError:
            continue  # its writer has just renamed it
