"""The command `ideal explain`: why a picture is anomalous, in words and as a picture."""

import argparse
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from ..writing.files import write_atomically
from ..writing.places import check_file
from .commands import load_pipeline, set_references
from .references import load_references

MADE_BY = ("Software", "ideal explain")  # the text in a PNG file by which the command knows its own


def explain(arguments: argparse.Namespace) -> str:
    """Judge one picture, draw why, and say it."""
    out = Path(arguments.out)
    if out.suffix.lower() != ".png":
        raise ValueError(f"--out: expected a file named .png, got {arguments.out!r}")
    check_file(out, "--out", replaces=_is_explanation, kind="a picture of `ideal explain`")
    if not Path(arguments.image).is_file():
        raise ValueError(f"IMAGE: expected an image file, got {arguments.image!r}")
    loaded = load_references(arguments.references, "--references")
    pipe = load_pipeline(arguments)
    references = set_references(pipe, references=loaded)
    result: Any = pipe(arguments.image, return_explanation=True, threshold=arguments.threshold)
    explanation = result["explanation"]
    write_atomically(out, _png(explanation["picture"]))
    lines = [f"{arguments.image}: {explanation['text']}", *_places(explanation), f"Open {out}"]
    beware = references.warnings if arguments.threshold is None else []  # they are about the other threshold
    return "\n".join([*lines, *(f"warning: {warning}" for warning in beware)])


def _places(explanation: dict[str, Any]) -> list[str]:
    """Where things are, in pixels."""
    nearest, defect = explanation["normal"][0], explanation["defect"]
    lines = [f"  region {explanation['region']['box']}, highest point {explanation['region']['score']:.3g}"]
    lines.append(
        f"  closest good part: {nearest['kind']} reference {nearest['reference'] + 1} at {nearest['box']}, similarity "
        f"{nearest['similarity']:.2f}"
    )
    if defect is not None:
        lines.append(
            f"  most similar defect: abnormal reference {defect['reference'] + 1} at {defect['box']}, similarity "
            f"{defect['similarity']:.2f}"
        )
    return lines


def _png(picture: Image.Image) -> bytes:
    texts, buffer = PngInfo(), BytesIO()
    texts.add_text(*MADE_BY)
    picture.save(buffer, "PNG", pnginfo=texts)
    return buffer.getvalue()


def _is_explanation(path: Path) -> bool:
    try:
        with Image.open(path) as picture:
            return picture.info.get(MADE_BY[0]) == MADE_BY[1]
    except (UnidentifiedImageError, OSError):
        return False
