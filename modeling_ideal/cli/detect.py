"""`ideal references` and `ideal detect`: the daily work."""

import argparse

from .arguments import add_model, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the commands to the parser of `ideal`."""
    _add_references(commands)
    _add_detect(commands)


def _add_references(commands: argparse._SubParsersAction) -> None:
    references = commands.add_parser(
        "references",
        help="encode the reference photographs of a product, once",
        description="Encodes photographs of good parts, of defective parts, or of both into one file for `ideal "
        "detect`, together with the decision threshold that they support.",
    )
    references.add_argument("--normal", metavar="DIR", help="photographs of good parts")
    references.add_argument("--abnormal", metavar="DIR", help="photographs of defective parts")
    references.add_argument(
        "--masks", metavar="DIR", help="masks of the defects: for each abnormal picture a file NAME or NAME_mask"
    )
    references.add_argument(
        "--types", action="store_true", help="the sub-folders of --abnormal are named after types of defect"
    )
    references.add_argument(
        "--false-alarm",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="share of good parts that may be called anomalous; sets the threshold (default: 0.05)",
    )
    references.add_argument(
        "--tiling",
        action="store_true",
        help="cut large pictures into tiles, here and in `ideal detect`, so that small defects are not resized away; "
        "needs two normal pictures for a threshold, and does not tell types apart",
    )
    add_model(references)
    references.add_argument("--out", required=True, metavar="FILE.safetensors", help="the references file to write")
    references.set_defaults(run=_references)


def _references(arguments: argparse.Namespace) -> int:
    from ..detection.commands import encode_references

    return say(encode_references(arguments))


def _add_detect(commands: argparse._SubParsersAction) -> None:
    detect = commands.add_parser(
        "detect",
        help="say which parts are bad, how sure, and where",
        description="Prints a table and writes OUT/results.json and an overlay of each picture: the anomaly map on a "
        "scale that is the same for all pictures, green at the threshold and red far above it. "
        "Exit code 0: every picture was judged; 1: some could not be read, and the table says which; 2: wrong use.",
    )
    detect.add_argument("images", nargs="+", metavar="IMAGES", help="files, folders or globs")
    detect.add_argument("--references", required=True, metavar="FILE", help="references file of `ideal references`")
    add_model(detect)
    detect.add_argument(
        "--threshold", type=float, help="scores from here on are anomalous (default: that of the references, or 0.5)"
    )
    detect.add_argument(
        "--smoothing", type=float, default=4.0, help="Gaussian smoothing of the anomaly maps, in pixels (default: 4)"
    )
    detect.add_argument("--batch-size", type=int, default=4, help="pictures processed at a time (default: 4)")
    detect.add_argument("--num-workers", type=int, default=0, help="processes that read pictures (default: 0)")
    detect.add_argument("--out", required=True, metavar="DIR", help="where to write")
    detect.set_defaults(run=_detect)


def _detect(arguments: argparse.Namespace) -> int:
    from ..detection.commands import detect

    table, complete = detect(arguments)
    say(table)
    return 0 if complete else 1
