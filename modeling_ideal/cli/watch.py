"""`ideal watch`."""

import argparse

from .arguments import EXIT_CODES, examples, exit_code, say
from .detect import add_judging


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    watch = commands.add_parser(
        "watch",
        help="judge pictures as they come into a folder",
        description="Judges every picture that comes into FOLDER, once: prints a line, appends the result to "
        "OUT/results.jsonl, and writes its overlay and OUT/report.html, a page of the latest pictures that loads "
        "itself again. Files that are still being written are waited for. It may be stopped and started again at any "
        "time, and the folder may vanish and return: nothing is judged twice or forgotten. A picture is known by "
        "its name and content: new content under an old name is a new picture, the same content again is not. Runs "
        "until Ctrl-C.",
        **examples(
            """
ideal watch --references product.safetensors camera/ --out found
ideal watch --references product.safetensors camera/ --out found --json | while read -r result; do ...; done
ideal watch --references product.safetensors camera/ --out found --once    # judge what is new, from cron
            """,
            EXIT_CODES,
        ),
    )
    watch.add_argument("folder", metavar="FOLDER", help="the folder to watch, with its sub-folders")
    add_judging(watch)
    watch.add_argument("--out", required=True, metavar="DIR", help="output folder: new, or of an earlier watch")
    watch.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="time between two looks (default: 1)"
    )
    watch.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long a file may be unreadable, without changing, before that is its result (default: 30)",
    )
    watch.add_argument(
        "--report-every",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="time after which the report is written again (default: 10)",
    )
    watch.add_argument("--once", action="store_true", help="judge what is there now, and end")
    watch.add_argument("--json", action="store_true", help="print each result as a line of JSON")
    watch.set_defaults(run=_watch, parquet=False, num_workers=0)


def _watch(arguments: argparse.Namespace) -> int:
    from ..detection.watch import watch

    return exit_code(watch(arguments, say))
