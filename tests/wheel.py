"""Build the wheel twice, in other folders and at other times, and compare the bytes: `make wheel`."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MADE = ("modeling_ideal", "hub", "pyproject.toml", "README.md", "LICENSE", "model_card.md")
TIME = "1767225600"  # of every file in the wheel, 2026-01-01, unless SOURCE_DATE_EPOCH says otherwise


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources in a folder, at the present time."""
    os.umask(0o022)  # a wheel keeps the permissions of its files
    source = folder / "source"
    source.mkdir(parents=True)
    for name in MADE:
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, source / name)
        else:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, copy_function=shutil.copyfile, ignore=ignored)
    words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    environment = {"SOURCE_DATE_EPOCH": TIME, **os.environ}
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, env=environment)
    [wheel] = folder.glob("*.whl")
    return wheel


def main() -> int:
    """Build and compare; returns 1 if the wheels differ."""
    with tempfile.TemporaryDirectory() as name:
        wheels = [build_wheel(Path(name, place)) for place in ("first", "further/second")]
        digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
        print("\n".join(f"{digest}  {wheel.name}" for digest, wheel in zip(digests, wheels, strict=True)))
    return int(len(set(digests)) > 1)


if __name__ == "__main__":
    sys.exit(main())
