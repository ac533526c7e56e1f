"""`ideal app`."""

import argparse

from .arguments import add_device, add_model, examples, say

LARGEST_PORT = 2**16 - 1


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    app = commands.add_parser(
        "app",
        help="inspect parts by hand, in a browser",
        description="Serves a page to add and mark references, see their calibration, judge pictures, move the "
        "threshold, correct verdicts, and download results, report and references file. Only this machine can open "
        "it, unless --host says otherwise; it fetches nothing from the internet. Ctrl-C stops it.",
        **examples("ideal app\nideal app --port 8080 --model path/to/trained"),
    )
    app.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 lets other machines open the page (default: 127.0.0.1)",
    )
    app.add_argument("--port", type=int, default=7860, help="port to listen on (default: 7860)")
    add_model(app)
    add_device(app)
    app.set_defaults(run=_app, extra="app")


def _app(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.port <= LARGEST_PORT:
        raise ValueError(f"--port: expected a number in 1..{LARGEST_PORT}, got {arguments.port}")
    from ..app.serve import serve

    serve(arguments, say)
    return 0
