"""Make the pictures of README and docs/ anew: `make pictures`, or `python -m tests.docs_pictures --only why`."""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import pipeline

import modeling_ideal
from modeling_ideal.app.detector import Detector
from modeling_ideal.app.serve import launch
from modeling_ideal.cli import main as ideal
from modeling_ideal.demo.rendering import render_part
from modeling_ideal.writing.files import write_atomically

from . import drawings
from .browser import screenshot, screenshot_of_example

DOCS = Path(__file__).resolve().parents[2] / "docs"
QUALITY = 82
SHOWN = ["query_00", "query_03", "query_05", "query_06", "cloth/query_01", "wood/query_00", "wood/query_01"]


class Workshop:
    """What the pictures are of: the demo, and the references of its flange."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def demo(self) -> Path:
        if ideal(["demo", "--out", str(self.folder / "demo")]) != 0:
            raise RuntimeError("expected the demo to run, got an error")
        return self.folder / "demo"

    @cached_property
    def pipe(self) -> Any:
        pipe = pipeline("anomaly-detection", model=modeling_ideal.IDEAL_TINY)
        known = [render_part(100, "scratch"), render_part(101, "rust")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # so few references support no low false-alarm rate
            self.references = pipe.set_references(
                normal=[render_part(seed).image for seed in range(6)],
                abnormal=[part.image for part in known],
                masks=[part.mask for part in known],
                types=[part.defect for part in known],
            )
        return pipe

    def parts_and_maps(self) -> Image.Image:
        results = {entry["picture"]: entry for entry in json.loads((self.demo / "results.json").read_text())}
        parts = []
        for name in SHOWN:
            picture, overlay = (Image.open(self.demo / f"{name}{end}.png") for end in ("", "_overlay"))
            parts.append((picture, overlay, results[f"{name}.png"]["truth"], results[f"{name}.png"]))
        return drawings.parts_and_maps(parts)

    def report(self) -> Image.Image:
        return screenshot(self.demo / "index.html", (1180, 1290), scale=0.8)

    def show(self) -> Image.Image:
        _ = self.pipe
        file, page = self.folder / "flange.safetensors", self.folder / "flange.html"
        self.references.save(file)
        ideal(["references", "--show", str(file), "--out", str(page)])
        return screenshot(page, (1100, 820))

    def app(self) -> Image.Image:
        page, address = launch(Detector(self.pipe), "127.0.0.1", None)
        try:
            return screenshot_of_example(address, 1000)
        finally:
            page.blocks.close(verbose=False)

    def why(self) -> Image.Image:
        return self.pipe(render_part(202, "scratch").image, return_explanation=True)["explanation"]["picture"]

    def calibration(self) -> Image.Image:
        _ = self.pipe
        return drawings.scores_and_threshold(self.references.calibration)

    def stages(self) -> Image.Image:
        good = [render_part(seed) for seed in range(3)]
        return drawings.stages(self.pipe, good, render_part(100, "rust"), render_part(201, "rust"))


PICTURES: dict[str, Callable[[Workshop], Image.Image]] = {
    "demo.jpg": Workshop.parts_and_maps,
    "pictures/report.jpg": Workshop.report,
    "pictures/references.jpg": Workshop.show,
    "pictures/app.jpg": Workshop.app,
    "pictures/why.jpg": Workshop.why,
    "pictures/calibration.jpg": Workshop.calibration,
    "pictures/method.jpg": Workshop.stages,
}


def jpeg(picture: Image.Image) -> bytes:
    buffer = BytesIO()
    picture.convert("RGB").save(buffer, format="JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    stems = {Path(name).stem: name for name in PICTURES}
    parser.add_argument("--only", nargs="+", choices=stems, default=list(stems), help="some of them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        for stem in arguments.only:
            content = jpeg(PICTURES[stems[stem]](workshop))
            write_atomically(DOCS / stems[stem], content)
            print(f"docs/{stems[stem]}: {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
