"""What a visitor does in the page, in a real browser."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageColor

from modeling_ideal import IdealReferences
from modeling_ideal.app.marks import COLOUR

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


def upload(page, zone, *paths):
    page.locator(f"#{zone} input[type=file]").set_input_files([str(path) for path in paths])


def paint(page, editor):
    """Paint a stroke across the middle of an editor's picture."""
    canvas = page.locator(f"#{editor} canvas").first
    expect(canvas).to_be_visible()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 30, y - 20)
    page.mouse.down()
    page.mouse.move(x + 30, y + 20, steps=2)
    page.mouse.up()


def point(page, name, across, down, press):
    """Click or tap on a place of the picture on which boxes are drawn, in shares of its width and height."""
    picture = page.locator(f"#{name} img")
    expect(picture).to_be_visible()
    picture.scroll_into_view_if_needed()
    before = picture.get_attribute("src")
    box = picture.bounding_box()
    press(box["x"] + across * box["width"], box["y"] + down * box["height"])
    expect(picture).not_to_have_attribute("src", before)  # it shows what was drawn


def drawn_share(page, name):
    """The share of a picture's pixels, as the window shows it, that have the colour of boxes."""
    shot = Image.open(BytesIO(page.locator(f"#{name} img").screenshot())).convert("RGB")
    return (np.abs(np.asarray(shot, int) - ImageColor.getrgb(COLOUR)).max(-1) < 40).mean()


def saved_references(page, folder):
    """The references file that the page makes, in the open tab of references."""
    page.get_by_text("Keep, load or change references").click()
    page.locator("#save").click()
    return IdealReferences.load(downloaded(page, "saved", 0, folder))


def assert_box(references, low, high):
    """The only defect, a spot, is marked by a box between these shares of width and height."""
    assert (references.mask_source, references.types) == ("given", ["spot"])
    [preview] = references.previews.abnormal
    marked = preview.marked()
    height, width = marked.shape
    rows, columns = marked.nonzero()
    found = (columns.min() / width, (columns.max() + 1) / width, rows.min() / height, (rows.max() + 1) / height)
    assert found == pytest.approx((low, high, low, high), abs=0.02)
    assert marked.sum() == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)  # filled


def add_references(page, files):
    upload(page, "drop-good", *(files[f"good_{place}"] for place in range(3)))
    expect(page.locator("#new-references img")).to_have_count(3)
    upload(page, "drop-defective", files["bad_0"])
    expect(page.locator("#new-references img")).to_have_count(4)


def inspect(page, *paths):
    page.get_by_role("tab", name="2. Inspect").click()
    upload(page, "drop-queries", *paths)


def downloaded(page, part, place, folder):
    with page.expect_download() as waiting:
        page.locator(f"#{part} a[download]").nth(place).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
