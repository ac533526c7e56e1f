"""From a built repository to the embedded model: weights and card copied, code linked to the source.

    python -m hub.embed build/ideal-tiny hub/ideal-tiny

The folder loads as the built one does, with or without the package, and holds no line of code twice.
"""

import os
import shutil
import sys
from pathlib import Path

from .files import CARD, WEIGHTS, shipped_sources

COPIED = ("config.json", "preprocessor_config.json", WEIGHTS, CARD)


def embed(built: Path, out: Path) -> None:
    """Make `out` from a folder of `ideal build`; what was there before is replaced as a whole."""
    missing = [name for name in COPIED if not (built / name).is_file()]
    if missing:
        raise ValueError(f"{built}: expected a folder that `ideal build` made, got none with {missing}")
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(built / name, new / name)
    for source in shipped_sources():
        (new / source.name).symlink_to(os.path.relpath(source, out))
    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)


if __name__ == "__main__":
    embed(Path(sys.argv[1]), Path(sys.argv[2]))
