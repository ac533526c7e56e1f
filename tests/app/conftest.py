"""A tiny model behind the app, and pictures for it."""

import pytest
from PIL import Image
from transformers import pipeline

from modeling_ideal import IdealImageProcessor
from modeling_ideal.app.detector import Detector

from ..conftest import PATCH, tiny_model
from ..pictures import photograph, with_defect

SIZE = (120, 160)  # height and width
BOX = (40, 60, 30)  # top, left and side of a defect


@pytest.fixture(scope="session")
def pipe():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    return pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)


@pytest.fixture(scope="session")
def detector(pipe):
    return Detector(pipe)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Pictures by name: good_0 to good_2, bad_0 and bad_1 with a dark square, part_0 to part_2 to judge."""
    folder = tmp_path_factory.mktemp("parts")
    found = {}
    for place in range(3):
        found[f"good_{place}"] = photograph(0, SIZE) // 2 + photograph(place, SIZE) // 8
        found[f"part_{place}"] = photograph(0, SIZE) // 2 + photograph(10 + place, SIZE) // 8
    for place in range(2):
        found[f"bad_{place}"] = with_defect(found[f"good_{place}"], *BOX)[0]
    paths = {name: folder / f"{name}.png" for name in found}
    for name, picture in found.items():
        Image.fromarray(picture).save(paths[name])
    paths["text"] = folder / "text.png"
    paths["text"].write_text("This is no picture.\n")
    return paths
