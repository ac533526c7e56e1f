"""Run many cases of bad input, in a process that may crash or hang, and say what was found: `make fuzz`."""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from hub.build import build
from modeling_ideal import IdealImageProcessor

from ..conftest import PATCH, tiny_model
from .running import findings, summary


def main() -> int:
    """Run the cases, and print a table and the faults; returns 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the first case; each case has its own (default: random)")
    arguments = parser.parse_args()
    first = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    print(f"seed {first}: `python -m tests.fuzz --cases {arguments.cases} --seed {first}` runs the same", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        repository = make_repository(Path(folder))
        numbers = range(first, first + arguments.cases)
        found = list(tqdm(findings(repository, numbers), total=len(numbers), unit=" cases", disable=None))
    print(summary(found, first))
    return int(any(finding.outcome == "fault" for finding, _ in found))


def make_repository(folder: Path) -> Path:
    """Build a Hub repository of a tiny model."""
    tiny_model().save_pretrained(folder / "model")
    IdealImageProcessor(size=8 * PATCH, patch_size=PATCH).save_pretrained(folder / "model")
    return build(folder / "model", folder / "repository")


if __name__ == "__main__":
    sys.exit(main())
