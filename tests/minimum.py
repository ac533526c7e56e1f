"""Print the lowest versions that pyproject.toml admits, as constraints for pip: `make minimum`."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def minimums() -> list[str]:
    """`name==version` of every requirement of the package, without extras, at its lowest version."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [f"{name}=={version}" for name, version in re.findall(r"([\w.-]+)>=([\w.]+)", " ".join(required))]


if __name__ == "__main__":
    left_out = sys.argv[1:]  # names of packages whose lowest version cannot be had
    print("\n".join(line for line in minimums() if line.partition("==")[0] not in left_out))
