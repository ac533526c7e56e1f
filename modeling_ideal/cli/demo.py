"""`ideal demo`."""

import argparse
from pathlib import Path

from .arguments import add_device, add_model, examples, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    demo = commands.add_parser(
        "demo",
        help="try the embedded model on rendered parts",
        description="Renders a few good and defective parts, uses them as references, inspects new parts, and writes "
        "images, heat maps, results.json and index.html to a folder. Needs neither data nor the Hub.",
        **examples("ideal demo\nideal demo --out /tmp/demo"),
    )
    demo.add_argument("--out", default="ideal-demo", metavar="DIR", help="output folder (default: ideal-demo)")
    add_model(demo)
    add_device(demo)
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from ..demo.command import demo

    return say(demo(Path(arguments.out), arguments.model, arguments.device))
