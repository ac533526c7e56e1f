"""`ideal references` and `ideal detect`: inspect parts with a model and a few references."""

import argparse

from .arguments import EXIT_CODES, add_device, add_model, examples, exit_code, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the commands to the parser of `ideal`."""
    _add_references(commands)
    _add_detect(commands)


def _add_references(commands: argparse._SubParsersAction) -> None:
    references = commands.add_parser(
        "references",
        help="encode the reference images of a product, once",
        description="Encodes images of good parts, of defective parts, or of both into one file for `ideal detect`, "
        "together with a decision threshold that is calibrated on them.",
        **examples(
            """
ideal references --normal normal/ --out product.safetensors
ideal references --normal normal/ --abnormal abnormal/ --masks masks/ --out product.safetensors
ideal references --normal normal/ --abnormal abnormal/ --types --false-alarm 0.01 --tiling --out product.safetensors
ideal references --extend product.safetensors --abnormal missed.png --masks missed_mask.png
ideal references --show product.safetensors --out product.html
            """
        ),
    )
    references.add_argument("--normal", metavar="DIR", help="images of good parts; or one file")
    references.add_argument("--abnormal", metavar="DIR", help="images of defective parts; or one file")
    references.add_argument(
        "--masks",
        metavar="DIR",
        help="masks of the defects: a file NAME or NAME_mask for each abnormal image; or one file",
    )
    references.add_argument(
        "--types",
        action="store_true",
        help="name the types of defects after the sub-folders of --abnormal, or after the folder of one file",
    )
    references.add_argument(
        "--false-alarm",
        type=float,
        metavar="RATE",
        help="requested false-alarm rate, which sets the threshold: the share of good parts that may be called "
        "anomalous (default: 0.05, or that of the file to extend)",
    )
    references.add_argument(
        "--tiling",
        action="store_true",
        help="cut large images into tiles, here and in `ideal detect`, so that resizing does not hide small defects",
    )
    references.add_argument(
        "--max-patches",
        type=int,
        metavar="N",
        help="keep N normal patches for scoring, those that represent the others, so that many references are as fast "
        "as few (default: all; in tiles 2048)",
    )
    add_model(references)
    add_device(references)
    references.add_argument(
        "--extend",
        metavar="FILE",
        help="add the pictures to this references file, as if all had been encoded together, and replace it, or write "
        "to --out; the pictures in it are not needed",
    )
    references.add_argument(
        "--no-pictures",
        action="store_true",
        help="keep no small pictures of the references in the file; --show and `ideal explain` then have none",
    )
    references.add_argument(
        "--show", metavar="FILE", help="say what is in this references file; with --out PAGE.html also as a page"
    )
    references.add_argument(
        "--out", metavar="FILE", help="the references file to write; needed unless --extend or --show is given"
    )
    references.set_defaults(run=_references)


def _references(arguments: argparse.Namespace) -> int:
    from ..detection.references import references

    return say(references(arguments))


def _add_detect(commands: argparse._SubParsersAction) -> None:
    detect = commands.add_parser(
        "detect",
        help="find anomalous parts, and where they are anomalous",
        description="Judges pictures, prints a table, and writes to OUT: report.html, a page that needs no other "
        "file; results.json and results.csv; and an overlay of each picture, the anomaly map on a scale that is the "
        "same for all, green at the threshold and red far above it. Every result is in OUT/results.jsonl as soon "
        "as it is known: a run that is stopped loses nothing. The confidence is the estimated share of good "
        "parts that score lower. OUT is a new folder, or that of an earlier run on these pictures, whose results are "
        "replaced; other files stay as they are. Under `accelerate launch` each process judges a share, and the "
        "first one writes the results of all; the exit code is then 0 or 3. With --ray the actors of Ray do.",
        **examples(
            """
ideal detect --references product.safetensors part.png --out found
ideal detect --references product.safetensors 'line_3/*.png' --out found
ideal detect --references product.safetensors line_3/ --out found --json > results.json
ideal detect --references product.safetensors line_3/ --out found --threshold 0.4 --parquet
ideal detect --references product.safetensors archive/ --out found --ray --actors 8
ideal detect --references product.safetensors belt.mp4 --every 25 --out found    # or camera:0, until Ctrl-C
            """,
            EXIT_CODES,
        ),
    )
    detect.add_argument(
        "images",
        nargs="+",
        metavar="IMAGES",
        help="files, folders or globs; videos, or camera:0 for a camera, where OpenCV is installed",
    )
    add_judging(detect)
    detect.add_argument(
        "--every", type=int, default=1, metavar="N", help="judge each Nth frame of a video (default: 1)"
    )
    detect.add_argument(
        "--num-workers",
        type=int,
        default=0,
        help="number of processes that read images, for a GPU (default: 0, and each core judges its own)",
    )
    detect.add_argument("--out", required=True, metavar="DIR", help="output folder")
    detect.add_argument("--json", action="store_true", help="print what is in results.json, instead of the table")
    detect.add_argument("--parquet", action="store_true", help="also write results.parquet; needs pyarrow")
    detect.add_argument(
        "--ray", action="store_true", help="judge in actors of Ray, one a core; needs the extra `ray`, and no GPU"
    )
    detect.add_argument(
        "--address", help="the Ray cluster to use, such as 10.0.0.1:6379 (default: Ray is started on this machine)"
    )
    detect.add_argument("--actors", type=int, metavar="N", help="number of actors (default: one for each core)")
    detect.set_defaults(run=_detect)


def add_judging(command: argparse.ArgumentParser) -> None:
    """Add what decides how pictures are judged."""
    command.add_argument("--references", required=True, metavar="FILE", help="a file made by `ideal references`")
    add_model(command)
    add_device(command)
    command.add_argument(
        "--threshold", type=float, help="lowest anomalous score (default: the threshold of the references, or 0.5)"
    )
    command.add_argument(
        "--smoothing", type=float, default=4.0, help="Gaussian smoothing of the anomaly maps, in pixels (default: 4)"
    )
    command.add_argument("--batch-size", type=int, default=4, help="images per batch (default: 4)")


def _detect(arguments: argparse.Namespace) -> int:
    from ..detection.detect import detect

    text, counts = detect(arguments)
    if text:
        say(text)
    return exit_code(counts)
