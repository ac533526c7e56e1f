"""The page in a real browser: Debian's Chromium, without a screen and without the internet."""

import json
import re
import shutil

import pytest

from modeling_ideal import IdealReferences
from modeling_ideal.app.serve import launch

from .browsing import (
    add_references,
    assert_box,
    downloaded,
    drawn_share,
    inspect,
    paint,
    point,
    saved_references,
    upload,
)

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)
expect = playwright.expect

OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
)
SECONDS = 120  # to wait for a condition, on a busy machine
DESK, TELEPHONE = {"width": 1000, "height": 800}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(detector, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        page, address = launch(detector, "127.0.0.1", None)
        yield address
        page.blocks.close(verbose=False)


@pytest.fixture(scope="module")
def browser():
    expect.set_options(timeout=1000 * SECONDS)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Opens the page as a new visitor, of whom only this machine hears; returns the page."""
    contexts, elsewhere = [], []

    def opened(viewport=None, **settings):
        context = browser.new_context(viewport=viewport or DESK, accept_downloads=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)

        def local_only(route):
            if not route.request.url.startswith(address):
                elsewhere.append(route.request.url)
                route.abort()
            else:
                route.continue_()

        page.route(re.compile("^(http|ws)s?:"), local_only)
        page.goto(address)
        expect(page.get_by_role("tab", name="2. Inspect")).to_be_visible()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert elsewhere == []


def test_from_references_to_a_report(visit, files, tmp_path):
    page = visit()
    add_references(page, files)
    expect(page.locator("#new-references")).to_contain_text("defective: bad_0.png, not marked")
    paint(page, "mark-editor")
    page.locator("#mark-button").click()
    expect(page.locator("#new-references")).not_to_contain_text("not marked")
    page.locator("#calibrate").click()
    shown = page.locator("#references")
    expect(shown.locator("figure")).to_have_count(4)
    expect(shown).to_contain_text(re.compile(r"Threshold [\d.e-]+: of new good parts like these, about 5.0%"))
    expect(shown.locator(".warning").first).to_contain_text("support a false-alarm rate")
    expect(shown.locator("circle")).not_to_have_count(0)

    inspect(page, files["part_0"], files["part_1"], files["bad_1"])
    summary = page.locator("#summary")
    expect(summary).to_contain_text("3 judged")
    slider = page.locator("#threshold input[type=range]")
    slider.press("Home")
    expect(summary).to_contain_text("3 anomalous, 0 normal")
    slider.press("End")
    expect(summary).to_contain_text("0 anomalous, 3 normal")

    page.locator("#overview button", has_text="bad_1.png").click()
    expect(page.locator("#details")).to_contain_text("bad_1.png: normal")
    page.locator("#wrong").click()
    page.locator("#missed-button").click()  # nothing is painted: the most suspicious region is taken
    expect(page.locator("#messages")).to_contain_text("bad_1.png is now a reference of a defective part")
    expect(summary).to_contain_text("2 judged")
    slider.press("Home")
    expect(summary).to_contain_text("2 anomalous, 0 normal")
    page.locator("#overview button", has_text="part_1.png").click()
    expect(page.locator("#details")).to_contain_text("part_1.png: anomalous")
    page.locator("#wrong").click()
    expect(page.locator("#messages")).to_contain_text("part_1.png is now a reference of a good part")
    expect(summary).to_contain_text("1 judged")

    page.locator("#export").click()
    expect(page.locator("#files a[download]")).to_have_count(3)
    results, table, report = (downloaded(page, "files", place, tmp_path) for place in range(3))
    [entry] = json.loads(results.read_text())["images"]
    assert entry["image"] == "part_0.png"
    assert table.read_text().splitlines()[1].startswith("part_0.png,")
    assert "Inspection report" in report.read_text()
    page.get_by_role("tab", name="1. References").click()
    page.get_by_text("Keep, load or change references").click()
    page.locator("#save").click()
    file = downloaded(page, "saved", 0, tmp_path)
    kept = IdealReferences.load(file)
    assert (kept.num_normal, kept.num_abnormal, kept.mask_source) == (4, 2, "given")
    page.locator("#clear").click()
    expect(page.locator("#references")).to_contain_text("No references yet")
    upload(page, "load", file)
    expect(page.locator("#references figure")).to_have_count(6)


def test_a_box_is_drawn_with_two_clicks(visit, files, tmp_path):
    page = visit()
    add_references(page, files)
    paint(page, "mark-editor")  # paint and boxes do not mix
    page.get_by_label("draw a box").first.click()
    expect(page.locator("#mark-editor")).to_be_hidden()
    click = page.mouse.click
    point(page, "mark-boxes", 0.25, 0.25, click)
    page.locator("#mark-button").click()
    expect(page.locator("#messages")).to_contain_text("expected two corners for each box, got one")
    expect(page.locator("#new-references")).to_contain_text("not marked")
    for across, down in ((0.75, 0.75), (0.1, 0.1), (0.2, 0.2)):
        point(page, "mark-boxes", across, down, click)
    assert drawn_share(page, "mark-boxes") > 0.003
    for _ in range(2):
        before = page.locator("#mark-boxes img").get_attribute("src")
        page.locator("#mark-undo").click()
        expect(page.locator("#mark-boxes img")).not_to_have_attribute("src", before)
    page.locator("#mark-type textarea, #mark-type input").fill("spot")
    page.locator("#mark-button").click()
    expect(page.locator("#new-references")).to_contain_text("spot: bad_0.png")
    expect(page.locator("#new-references")).not_to_contain_text("not marked")
    page.locator("#calibrate").click()
    expect(page.locator("#references figure")).to_have_count(4)
    assert_box(saved_references(page, tmp_path), 0.25, 0.75)


def test_a_missed_defect_marked_by_a_box_becomes_a_reference(visit, files, tmp_path):
    page = visit()
    upload(page, "drop-good", *(files[f"good_{place}"] for place in range(3)))
    expect(page.locator("#new-references img")).to_have_count(3)
    page.locator("#calibrate").click()
    expect(page.locator("#references figure")).to_have_count(3)
    inspect(page, files["bad_1"])
    expect(page.locator("#summary")).to_contain_text("1 judged")  # the slider is there with the verdict, not before
    expect(page.locator("#details")).to_contain_text("bad_1.png: ")
    page.locator("#threshold input[type=range]").press("End")
    expect(page.locator("#details")).to_contain_text("bad_1.png: normal")
    page.locator("#wrong").click()
    page.locator("#missed-way").get_by_label("draw a box").click()
    expect(page.locator("#missed-editor")).to_be_hidden()
    for place in (0.25, 0.75):
        point(page, "missed-boxes", place, place, page.mouse.click)
    page.locator("#missed-type textarea, #missed-type input").fill("spot")
    page.locator("#missed-button").click()
    expect(page.locator("#messages")).to_contain_text("bad_1.png is now a reference of a defective part")
    page.get_by_role("tab", name="1. References").click()
    expect(page.locator("#references figure")).to_have_count(4)
    assert_box(saved_references(page, tmp_path), 0.25, 0.75)


def test_two_visitors_do_not_see_each_other(visit, files):
    first, second = visit(), visit()
    upload(first, "drop-good", files["good_0"], files["good_1"])
    expect(first.locator("#new-references img")).to_have_count(2)
    upload(second, "drop-good", files["part_0"])
    expect(second.locator("#new-references img")).to_have_count(1)
    first.locator("#calibrate").click()
    expect(first.locator("#references figure")).to_have_count(2)
    expect(second.locator("#new-references")).to_contain_text("part_0.png")
    second.locator("#calibrate").click()
    expect(second.locator("#references figure")).to_have_count(1)
    inspect(first, files["part_1"])
    inspect(second, files["part_2"])
    expect(first.locator("#details")).to_contain_text("part_1.png")
    expect(second.locator("#details")).to_contain_text("part_2.png")
    for page, own in ((first, "part_1"), (second, "part_2")):
        expect(page.locator("#summary")).to_contain_text("1 judged")
        expect(page.locator("#overview")).to_contain_text(own)
    expect(first.locator("#references figure")).to_have_count(2)


def test_what_is_no_picture_gets_a_message_and_the_page_lives_on(visit, files):
    page = visit()
    upload(page, "drop-good", files["text"], files["good_0"])
    expect(page.locator("#messages")).to_contain_text("text.png: expected a PNG, JPEG, WebP, BMP or TIFF picture")
    expect(page.locator("#new-references img")).to_have_count(1)
    page.locator("#calibrate").click()
    expect(page.locator("#references figure")).to_have_count(1)
    inspect(page, files["text"])
    expect(page.locator("#messages")).to_contain_text("text.png: expected")
    upload(page, "drop-queries", files["part_0"])
    expect(page.locator("#summary")).to_contain_text("1 judged")
    expect(page.locator("#messages")).not_to_contain_text("expected")


def test_on_a_telephone(visit, files):
    page = visit(TELEPHONE, has_touch=True, is_mobile=True)
    add_references(page, files)
    expect(page.locator("#mark-editor canvas").first).to_be_visible()
    paint(page, "mark-editor")
    page.locator("#mark-button").tap()
    expect(page.locator("#new-references")).not_to_contain_text("not marked")
    upload(page, "drop-defective", files["bad_1"])
    page.get_by_label("draw a box").first.tap()
    for place in (0.3, 0.6):
        point(page, "mark-boxes", place, place, page.touchscreen.tap)
    assert drawn_share(page, "mark-boxes") > 0.001
    assert page.locator("#mark-boxes img").bounding_box()["width"] > 0.7 * TELEPHONE["width"]  # a finger can point
    page.locator("#mark-button").tap()
    expect(page.locator("#new-references img")).to_have_count(5)
    expect(page.locator("#new-references")).not_to_contain_text("not marked")
    page.locator("#calibrate").tap()
    expect(page.locator("#references figure")).to_have_count(5)
    inspect(page, files["part_0"], files["bad_1"])
    expect(page.locator("#summary")).to_contain_text("2 judged")
    page.locator("#overview button", has_text="bad_1.png").tap()
    expect(page.locator("#details")).to_contain_text("bad_1.png")
    for part in ("#threshold", "#overview", "#details img", "#wrong", "#export"):
        box = page.locator(part).first.bounding_box()
        assert box["x"] >= 0, part
        assert box["x"] + box["width"] <= TELEPHONE["width"] + 1, part
    assert page.evaluate("document.documentElement.scrollWidth") <= TELEPHONE["width"]
