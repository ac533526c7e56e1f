"""`ideal demo`: references, detection and a report, all on rendered images."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import pipeline
from transformers.utils import logging

from .. import IDEAL_TINY
from ..data.images import png_bytes
from ..devices import choose_device
from ..pipeline_ideal import TASK, AnomalyDetectionPipeline
from ..references import IdealReferences
from ..report.page import CONFIDENCE, Report, shown_share
from ..report.thumbnails import make_thumbnails
from ..writing.files import json_bytes
from ..writing.places import OutputFolder
from ..writing.tables import text_table
from .materials import MATERIALS, render_material
from .rendering import DEFECTS, Part, render_part

FIRST_QUERY_SEED = 100
RESULTS, PAGE = "results.json", "index.html"
OVERLAY = "_overlay.png"

Verdict = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """Something that is inspected.

    Args:
        name: what it is.
        folder: where its pictures are written, with a / at the end; empty for the output folder itself.
        render: renders one from a seed, good or with a defect.
        defects: names of all its defects.
        num_normal: number of normal references.
        known: types of defects with a reference; the others are unknown to the model.
        queries: the defects of the new ones, or "good".
    """

    name: str
    folder: str
    render: Callable[[int, str], Part]
    defects: tuple[str, ...]
    num_normal: int
    known: tuple[str, ...]
    queries: tuple[str, ...]

    def picture_names(self) -> list[str]:
        """Names of all pictures: normal references, abnormal ones with their masks, queries with their overlays."""
        names = [f"normal_{place:02}.png" for place in range(self.num_normal)]
        for place in range(len(self.known)):
            names += [f"abnormal_{place:02}.png", f"abnormal_{place:02}_mask.png"]
        for place in range(len(self.queries)):
            names += [f"query_{place:02}.png", f"query_{place:02}{OVERLAY}"]
        return [self.folder + name for name in names]


def _material(name: str, known: str) -> Product:
    defects = tuple(MATERIALS[name][1])
    return Product(name, f"{name}/", partial(render_material, name), defects, 4, (known,), ("good", *defects, "good"))


PRODUCTS = (
    Product(
        "flange", "", render_part, tuple(DEFECTS), 6, ("scratch", "rust"), (*["good"] * 3, *DEFECTS, "good", *DEFECTS)
    ),
    _material("cloth", "hole"),
    _material("wood", "crack"),
)


def demo(out: Path, model: str | None = None, device: str | None = None) -> str:
    """Detect defects in rendered parts, write `out / "index.html"` and what it shows, and return a summary."""
    names = [name for product in PRODUCTS for name in [*product.picture_names(), product.folder + PAGE]]
    folder = OutputFolder(out, "demo", [*names, RESULTS])
    shown = logging.is_progress_bar_enabled()  # a person may have switched all off
    logging.disable_progress_bar()  # of loading weights
    try:
        detector = pipeline(TASK, model=str(model or IDEAL_TINY), device=choose_device(device))
    finally:
        if shown:
            logging.enable_progress_bar()
    inspections = [_Inspection(product, detector) for product in PRODUCTS]
    for inspection in inspections:
        for name, picture in zip(inspection.product.picture_names(), inspection.pictures(), strict=True):
            folder.write(name, png_bytes(picture))
        folder.write(inspection.product.folder + PAGE, inspection.page(out))
    verdicts = [verdict for inspection in inspections for verdict in inspection.verdicts]
    folder.write(RESULTS, json_bytes(verdicts))
    folder.finish()
    beware = [f"warning: {i.product.name}: {warning}" for i in inspections for warning in i.references.warnings]
    seconds = sum(inspection.seconds for inspection in inspections) / len(verdicts)
    return "\n".join([_table(verdicts), *beware, "", f"{seconds * 1000:.0f} ms per image. Open {out / PAGE}"])


class _Inspection:
    """One product: its references, new pieces, and the verdicts on them."""

    def __init__(self, product: Product, detector: AnomalyDetectionPipeline) -> None:
        self.product = product
        self.normal = [product.render(seed, "good") for seed in range(product.num_normal)]
        self.abnormal = [
            product.render(product.num_normal + place, known) for place, known in enumerate(product.known)
        ]
        self.queries = [product.render(FIRST_QUERY_SEED + place, kind) for place, kind in enumerate(product.queries)]
        self.references = self._encode(detector)
        started = time.perf_counter()
        images = [part.image for part in self.queries]
        results: Any = detector(images, return_overlay=True, return_regions=True)
        self.seconds = time.perf_counter() - started
        self.results: list[Verdict] = results
        self.verdicts = [self._verdict(place, result) for place, result in enumerate(self.results)]

    def _encode(self, detector: AnomalyDetectionPipeline) -> IdealReferences:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # printed below the table
            return detector.set_references(
                normal=[part.image for part in self.normal],
                abnormal=[part.image for part in self.abnormal],
                masks=[part.mask for part in self.abnormal],
                types=list(self.product.known),
            )

    def _verdict(self, place: int, result: Verdict) -> Verdict:
        """The entry of a query in results.json and in the table."""
        picture, truth = f"{self.product.folder}query_{place:02}.png", self.queries[place].defect
        verdict = {"picture": picture, "product": self.product.name, "truth": truth, "label": result["label"]}
        for name in ("score", "threshold", "confidence"):
            verdict[name] = round(result[name], 4)
        return {**verdict, "type": result["type"]}

    def pictures(self) -> list[Image.Image]:
        """All pictures, in the order of their names."""
        pictures = [part.image for part in self.normal]
        pictures += [picture for part in self.abnormal for picture in (part.image, part.mask) if picture is not None]
        for part, result in zip(self.queries, self.results, strict=True):
            pictures += [part.image, result["overlay"]]
        return pictures

    def page(self, out: Path) -> bytes:
        """The report, as `ideal detect` has it, with the references; it links to those of the other products."""
        shown = [(part.image, "good") for part in self.normal]
        for part in self.abnormal:
            masks = [] if part.mask is None else [(part.mask, f"mask of the {part.defect}")]
            shown += [(part.image, part.defect), *masks]
        entries, thumbnails = [], {}
        for verdict, result, part in zip(self.verdicts, self.results, self.queries, strict=True):
            overlay = Path(verdict["picture"]).stem + OVERLAY
            entries.append(
                {**verdict, "image": Path(verdict["picture"]).name, "overlay": overlay, "regions": result["regions"]}
            )
            thumbnails[overlay] = make_thumbnails(part.image, result["overlay"])
        unknown = [defect for defect in self.product.defects if defect not in self.product.known]
        folder = out / self.product.folder
        return Report(
            f"IDEAL demo: {self.product.name}",
            [
                "Rendered, and judged with the references below. "
                f"No reference shows these defects: {', '.join(unknown)}."
            ],
            self.references.warnings,
            entries,
            thumbnails,
            folder=folder,
            pictures=folder,
            references=[(make_thumbnails(picture, None), caption) for picture, caption in shown],
            links=[(product.name, self._way_to(product)) for product in PRODUCTS if product is not self.product],
        ).html()

    def _way_to(self, product: Product) -> str:
        return ("../" if self.product.folder else "") + product.folder + PAGE


def _table(verdicts: list[Verdict]) -> str:
    head = ["picture", "truth", "label", "type", "score", "threshold", "confidence"]
    rows = [
        [
            *(verdict[name] or "" for name in ("picture", "truth", "label", "type")),
            *(f"{verdict[name]:.3g}" for name in ("score", "threshold")),
            shown_share(verdict["confidence"]),
        ]
        for verdict in verdicts
    ]
    right = sum((verdict["truth"] == "good") == (verdict["label"] == "normal") for verdict in verdicts)
    return f"{text_table(head, rows, words=4)}\n{right} of {len(verdicts)} right. {CONFIDENCE}."
