"""The command `ideal references`: encodes pictures to a references file, adds pictures to one, or shows one."""

import argparse
import warnings
from pathlib import Path

from ..references import IdealReferences
from ..writing.files import write_atomically
from ..writing.places import check_file
from .commands import announce, encode_references, is_references_file, load_pipeline, save_references
from .contents import describe
from .contents_page import MARK, page
from .files import given_pictures

PAGES = (".html", ".htm")


def references(arguments: argparse.Namespace) -> str:
    """Do what the arguments of `ideal references` ask for, and return a summary with any warnings."""
    if arguments.show is not None:
        return show_references(arguments)
    if arguments.extend is not None:
        return extend_references(arguments)
    if arguments.out is None:
        raise ValueError("--out: expected the references file to write, got none")
    return encode_references(arguments)


def extend_references(arguments: argparse.Namespace) -> str:
    """Add pictures to a references file, which is replaced once all is done, or left as it is with --out."""
    known = load_references(arguments.extend, "--extend")  # before the model: a damaged file is noticed at once
    for option, given in (("--tiling", arguments.tiling), ("--max-patches", arguments.max_patches is not None)):
        if given:
            raise ValueError(f"{option}: expected it when the references are first encoded, got it with --extend")
    out = Path(arguments.extend if arguments.out is None else arguments.out)
    check_file(out, "--out", replaces=is_references_file, kind="a references file")
    pictures = given_pictures(arguments)
    announce(pictures)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are part of the summary
        extended = load_pipeline(arguments).extend_references(
            known, **pictures._asdict(), false_alarm=arguments.false_alarm
        )
    return save_references(extended, out)


def show_references(arguments: argparse.Namespace) -> str:
    """Say what is in a references file, and write a page about it if --out is given."""
    for name in ("normal", "abnormal", "masks", "types", "false_alarm", "tiling", "max_patches", "extend"):
        if getattr(arguments, name):
            raise ValueError(f"--show: expected no argument but --out with it, got --{name.replace('_', '-')}")
    path, out = Path(arguments.show), None if arguments.out is None else Path(arguments.out)
    shown = load_references(arguments.show, "--show")
    if out is None:
        return describe(shown, path)
    if out.suffix.lower() not in PAGES:
        raise ValueError(f"--out: expected a file named .html with --show, got {str(out)!r}")
    check_file(out, "--out", replaces=_is_page, kind="a page of `ideal references --show`")
    write_atomically(out, page(shown, path).encode("utf-8", "backslashreplace"))
    return f"{describe(shown, path)}\n\nOpen {out}"


def _is_page(path: Path) -> bool:
    with open(path, "rb") as stream:
        return MARK.encode() in stream.read(2000)


def load_references(path: str, name: str) -> IdealReferences:
    """Load the references file that the command-line argument `name` gives."""
    if not Path(path).is_file():
        raise ValueError(f"{name}: expected a file made by `ideal references`, got {path!r}")
    return IdealReferences.load(path)
