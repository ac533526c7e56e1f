"""Make the embedded model ideal-tiny from a built repository: configuration, processor, weights and card.

    python -m hub.embed build/ideal-tiny

The code is in the package that contains the folder, so it is neither copied nor named in the configurations.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import modeling_ideal
from modeling_ideal.configuration_ideal import REMOTE_CODE
from modeling_ideal.writing.files import write_json

from .files import CARD, WEIGHTS, read_record

CONFIGURATIONS = ("config.json", "preprocessor_config.json")


def embed(built: Path, out: Path) -> None:
    """Make `out` from a folder made by `ideal build`, replacing what was there."""
    missing = [name for name in (*CONFIGURATIONS, WEIGHTS, CARD) if not (built / name).is_file()]
    if missing:
        raise ValueError(f"{built}: expected a folder made by `ideal build`, got one without {missing}")
    read_record(built)  # nothing was changed since
    if others := sorted({path.name for path in out.glob("*")} - {*CONFIGURATIONS, WEIGHTS, CARD}):
        raise ValueError(f"{out}: expected an embedded model to replace, got a folder with {others}")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as name:
        new, before = Path(name, "new"), Path(name, "before")
        new.mkdir()
        for file in (WEIGHTS, CARD):
            shutil.copyfile(built / file, new / file)
        for file in CONFIGURATIONS:
            values = json.loads((built / file).read_text())
            write_json(new / file, {key: value for key, value in values.items() if key not in REMOTE_CODE})
        if out.exists():
            os.rename(out, before)
        os.rename(new, out)


if __name__ == "__main__":
    embed(Path(sys.argv[1]), Path(modeling_ideal.IDEAL_TINY))
