"""Make the embedded model ideal-tiny from a built repository: configuration, processor, weights and card.

    python -m hub.embed build/ideal-tiny

The code is in the package that contains the folder, so it is neither copied nor named in the configurations.
"""

import json
import shutil
import sys
from pathlib import Path

import modeling_ideal
from modeling_ideal.configuration_ideal import REMOTE_CODE
from modeling_ideal.writing.files import write_json

from .files import CARD, WEIGHTS

CONFIGURATIONS = ("config.json", "preprocessor_config.json")


def embed(built: Path, out: Path) -> None:
    """Make `out` from a folder made by `ideal build`, replacing what was there."""
    missing = [name for name in (*CONFIGURATIONS, WEIGHTS, CARD) if not (built / name).is_file()]
    if missing:
        raise ValueError(f"{built}: expected a folder made by `ideal build`, got one without {missing}")
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name in (WEIGHTS, CARD):
        shutil.copyfile(built / name, new / name)
    for name in CONFIGURATIONS:
        values = json.loads((built / name).read_text())
        write_json(new / name, {key: value for key, value in values.items() if key not in REMOTE_CODE})
    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)


if __name__ == "__main__":
    embed(Path(sys.argv[1]), Path(modeling_ideal.IDEAL_TINY))
