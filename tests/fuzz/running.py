"""Cases one after another in a process that may crash or hang, and what was found."""

import multiprocessing
import resource
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from modeling_ideal.writing.tables import text_table

from .cases import Finding, chosen_by, run_case
from .ways import Ways

HANGS = 120  # seconds, of a case
START = 300  # seconds, until the first case
SHOWN = 20  # faults


def findings(repository: Path, numbers: range) -> Iterator[tuple[Finding, int]]:
    """Yield what becomes of each case, crash or hang included, and the memory in MB at most so far."""
    done = 0
    while done < len(numbers):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs, repository, numbers[done:]))
        process.start()
        theirs.close()
        try:
            ours.poll(START) and ours.recv()
            while done < len(numbers) and ours.poll(HANGS):
                yield ours.recv()
                done += 1
            fault = f"no end after {HANGS} seconds"
        except EOFError:
            process.join()
            fault = f"a crash with exit code {process.exitcode}"
        process.kill()
        process.join()
        if done < len(numbers):
            yield Finding(*chosen_by(numbers[done]), "fault", fault), 0
            done += 1


def work(connection: Connection, repository: Path, numbers: range) -> None:
    """Run cases, and send what became of each."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        ways = Ways(repository, Path(folder))
        connection.send("ready")
        for number in numbers:
            connection.send((run_case(ways, number), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


def summary(found: list[tuple[Finding, int]], first: int) -> str:
    """What was found: numbers by way and by kind, then the faults with their seeds."""
    lines = []
    for name in ("way", "kind"):
        counts = Counter((getattr(finding, name), finding.outcome) for finding, _ in found)
        rows = [
            [value, *(str(counts[value, outcome]) for outcome in ("judged", "refused", "fault"))]
            for value in sorted({value for value, _ in counts})
        ]
        lines += [text_table([name, "judged", "refused", "faults"], rows, 1), ""]
    faults = [(first + place, finding) for place, (finding, _) in enumerate(found) if finding.outcome == "fault"]
    lines += [f"seed {seed}: {one.way}, {one.kind}: {one.fault:.300}" for seed, one in faults[:SHOWN]]
    memory = max((peak for _, peak in found), default=0)
    return "\n".join([*lines, f"{len(found)} cases, {len(faults)} faults; at most {memory:,} MB of memory"])
