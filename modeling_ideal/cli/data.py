"""`ideal data check`."""

import argparse
import json

from .arguments import add_layout, examples, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    data = commands.add_parser("data", help="work with data folders", **examples("ideal data check my_parts/"))
    actions = data.add_subparsers(metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="count the images of a data folder and report what is wrong with it",
        description="Counts the images of each category, split and type, and reports masks that are missing, empty or "
        "of the wrong size, unreadable files, images that are in both train and test, and images of an unusual size. "
        "Exit code 0: no problems; 1: problems found; 3: the folder cannot be checked.",
        **examples(
            """
ideal data check my_parts/
ideal data check path/to/mpdd --layout mpdd --json > report.json
            """
        ),
    )
    check.add_argument("folder", metavar="DIR", help="the folder of a data set, or your own images")
    add_layout(check, "the folder")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run=_check, without_model=True)


def _check(arguments: argparse.Namespace) -> int:
    from ..data.check import check

    report = check(arguments.folder, arguments.layout)
    say(json.dumps(report.as_json(), indent=2, ensure_ascii=False) if arguments.json else report.as_text())
    return 1 if report.problems else 0
