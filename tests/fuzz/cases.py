"""Cases, each made from one number: which sample goes which way."""

import traceback
from typing import NamedTuple

import numpy as np

from .files import FILES
from .values import VALUES
from .ways import SINGLE, FaultError, Ways

COMMAND_LINE, REFERENCES_FILE = "command line", "references file"
OF_FILES = ("handler", "app")  # ways that take files alone
AT_ONCE = 6  # files in a run of the command line


class Finding(NamedTuple):
    """What became of a case."""

    way: str
    kind: str
    outcome: str  # "judged", "refused" or "fault"
    fault: str = ""


def run_case(ways: Ways, seed: int) -> Finding:
    """Make a case, and run it; a fault is part of the finding."""
    random = np.random.default_rng(seed)
    way, kind = chosen(random)
    try:
        return Finding(way, kind, _run(ways, way, kind, random))
    except FaultError as fault:
        return Finding(way, kind, "fault", str(fault))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return Finding(way, kind, "fault", f"{type(error).__name__} at {where}: {error}")


def chosen_by(seed: int) -> tuple[str, str]:
    """The way and the kind of a case, without running it."""
    return chosen(np.random.default_rng(seed))


def chosen(random: np.random.Generator) -> tuple[str, str]:
    """A way, and a kind of sample; running the command line takes most of the time, and so is rare."""
    number = random.integers(100)
    if number < 2:
        return COMMAND_LINE, "files with odd names"
    if number < 6:
        return REFERENCES_FILE, "damaged references"
    way = list(SINGLE)[int(random.integers(len(SINGLE)))]
    kinds = list(FILES) if way in OF_FILES else [*FILES, *VALUES]
    return way, kinds[int(random.integers(len(kinds)))]


def _run(ways: Ways, way: str, kind: str, random: np.random.Generator) -> str:
    if way == COMMAND_LINE:
        makers = [list(FILES.values())[int(place)] for place in random.integers(len(FILES), size=AT_ONCE)]
        return ways.through_command_line([make(random) for make in makers], random)
    if way == REFERENCES_FILE:
        return ways.through_references_file(random)
    return SINGLE[way](ways, {**FILES, **VALUES}[kind](random))
