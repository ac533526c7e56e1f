"""Write `requirements.lock`, the versions of `constraints.txt` with the hashes of their files: `make lock`.

The hashes are those of the files that pip takes on this kind of machine: Linux, x86-64, Python 3.11. torch is left
out, because each machine takes the build for its processor; it is pinned by version alone.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from modeling_ideal.writing.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
BY_VERSION_ALONE = ("torch", "modeling-ideal")
HEAD = """\
# What the tests run with on Linux (x86-64) with Python 3.11, by hash. First torch, whose build depends on the machine:
# pip install --constraint constraints.txt torch
# pip install --require-hashes --no-deps --requirement requirements.lock
# Made by `make lock` from constraints.txt.
"""


def resolve(folder: Path) -> dict[str, Any]:
    """What pip would install for development into an empty environment."""
    report = folder / "report.json"
    words = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
    words += ["--constraint", str(ROOT / "constraints.txt"), f"modeling-ideal[dev] @ {ROOT.as_uri()}"]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return json.loads(report.read_text())


def lock(report: dict[str, Any]) -> str:
    """The content of the file, from a report of pip."""
    lines = []
    for package in report["install"]:
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        if name not in BY_VERSION_ALONE:
            lines.append(
                f"{name}=={version} --hash=sha256:{package['download_info']['archive_info']['hashes']['sha256']}"
            )
    return HEAD + "\n".join(sorted(lines, key=str.lower)) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        write_atomically(LOCK, lock(resolve(Path(made))).encode())
