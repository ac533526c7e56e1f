"""Examples, rendered when somebody asks for one: pictures of the products of `ideal demo`."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.images import png_bytes
from ..demo.command import FIRST_QUERY_SEED, PRODUCTS
from ..writing.files import write_atomically
from .progress import Progress, silent
from .uploads import Picture, read_picture

NUM_NORMAL = 4
NUM_QUERIES = 4
NAMES = tuple(product.name for product in PRODUCTS)


class Example(NamedTuple):
    """References with marked defects, and files to judge."""

    references: list[Picture]
    queries: list[Path]


def make_example(name: str, folder: Path, progress: Progress = silent) -> Example:
    """Render an example to files in a folder.

    The pictures to judge are a good one and others with defects, also such that no reference shows.
    """
    found = [product for product in PRODUCTS if product.name == name]
    if not found:
        raise ValueError(f"expected an example among {', '.join(NAMES)}, got {name!r}")
    [product] = found
    # The seed, the defect and the name of each picture.
    good = [(place, "good", f"good_{place + 1}.png") for place in range(NUM_NORMAL)]
    bad = [(product.num_normal + place, defect, f"{defect}.png") for place, defect in enumerate(product.known)]
    judged = ("good", *product.defects)[:NUM_QUERIES]
    queries = [(FIRST_QUERY_SEED + place, defect, f"part_{place + 1}.png") for place, defect in enumerate(judged)]
    references = []
    for seed, defect, file_name in progress([*good, *bad, *queries], "Rendering"):
        part, file = product.render(seed, defect), folder / file_name
        write_atomically(file, png_bytes(part.image))
        if seed >= FIRST_QUERY_SEED:
            continue
        picture = read_picture(file, file.name, defective=defect != "good")
        references.append(picture if part.mask is None else picture.marked(np.asarray(part.mask) > 0, defect))
    return Example(references, [folder / file_name for _, _, file_name in queries])
