"""Kill every kind of writer many times, and say what was found: `make faults`."""

import argparse
import secrets
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

from tqdm import tqdm

from modeling_ideal.writing.tables import text_table

from .killing import kill_again_and_again
from .kinds import KINDS


def main() -> int:
    """Run, and print a table; returns 1 if anything was found half-written or lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the moments (default: random)")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), help="default: all")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"seed {arguments.seed}", flush=True)
    rows, faults = [], 0
    for name in tqdm(arguments.kinds, unit=" kinds", disable=None):
        with tempfile.TemporaryDirectory() as folder:
            try:
                versions = kill_again_and_again(KINDS[name], Path(folder), arguments.kills, arguments.seed)
                rows.append([name, str(arguments.kills), str(versions), "none"])
            except Exception:
                faults += 1
                traceback.print_exc()
                rows.append([name, str(arguments.kills), "-", "see above"])
    print(text_table(["written", "kills", "versions", "half-written or lost"], rows, 1))
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
