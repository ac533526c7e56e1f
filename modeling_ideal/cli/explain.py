"""`ideal explain`: why a picture is anomalous, or is not."""

import argparse

from .arguments import add_device, add_model, examples, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser of `ideal`."""
    explain = commands.add_parser(
        "explain",
        help="show why a picture is anomalous, or is not",
        description="Judges one picture, says why, and draws it: where it differs most from good parts, the closest "
        "good part, and the most similar of the known defects.",
        **examples("ideal explain --references product.safetensors missed.png --out why.png"),
    )
    explain.add_argument("image", metavar="IMAGE", help="the picture")
    explain.add_argument("--references", required=True, metavar="FILE", help="a file made by `ideal references`")
    explain.add_argument(
        "--threshold", type=float, help="lowest anomalous score (default: the threshold of the references, or 0.5)"
    )
    add_model(explain)
    add_device(explain)
    explain.add_argument("--out", required=True, metavar="FILE.png", help="the picture to write")
    explain.set_defaults(run=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    from ..detection.explain import explain

    return say(explain(arguments))
