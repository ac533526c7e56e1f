"""The report: what it says, what it may hold, and that no name does anything in it."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from modeling_ideal.detection.tables import as_text
from modeling_ideal.report.histogram import draw_histogram, score_bins
from modeling_ideal.report.page import Report, count_kinds
from modeling_ideal.report.thumbnails import HighestPictures, make_thumbnails

from .pictures import photograph

NASTY = "<script>alert(1)</script> \"x\" 'y' &amp; \n javascript:alert(2).png"


def entry(name, score, threshold=0.4, **more):
    label = "anomalous" if score >= threshold else "normal"
    return {"image": name, "score": score, "threshold": threshold, "label": label, **more}


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(page.decode())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_a_page_says_everything_and_needs_nothing_else(tmp_path):
    region = {"box": (2, 3, 12, 9), "score": 0.8, "area": 44}
    entries = [
        entry("low.png", 0.1, confidence=0.2, overlay="overlays/low.png", regions=[]),
        {"image": "cut.png", "error": "cut.png: expected a readable image"},
        entry("high.png", 0.7, confidence=0.99999, type="scratch", overlay="overlays/high.png", regions=[region] * 7),
    ]
    (tmp_path / "overlays").mkdir()
    (tmp_path / "overlays" / "high.png").touch()
    thumbnails = {"overlays/high.png": make_thumbnails(photograph(0), Image.fromarray(photograph(1)))}
    page = Report("Parts", ["made with care"], ["few references"], entries, thumbnails, folder=tmp_path).html()
    elements, text = Elements(page), page.decode()
    for words in ("few references", "made with care", "looks most like: scratch", "score 0.7, threshold 0.4"):
        assert words in text
    assert text.index("cut.png") < text.index("high.png") < text.index("low.png")  # by score, what failed first
    assert [attributes["class"] for attributes in elements.of("article")] == [
        "card error",
        "card anomalous",
        "card normal",
    ]
    assert "7 regions" in elements.texts
    assert "and 2 more" in elements.texts
    assert len(elements.of("rect")) == 2 + 5  # bars of the histogram, framed regions
    sources = [attributes["src"] for attributes in elements.of("img")]
    assert len(sources) == 2
    assert [attributes["alt"] for attributes in elements.of("img")] == ["high.png", "heat map of high.png"]
    assert "expected a readable image" in elements.texts  # without the name, which stands above
    assert as_text(entries).splitlines()[2].split() == ["cut.png", "expected", "a", "readable", "image"]
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert not [name for name, _ in elements.elements if name in ("script", "link", "iframe")]
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", text)
    links = [attributes["href"] for attributes in elements.of("a")]
    assert links == ["#all", "#anomalous", "#normal", "#error", "overlays/high.png"]  # to what is there


def test_no_name_does_anything_in_a_page(tmp_path):
    entries = [
        entry(NASTY, 0.7, type=NASTY, truth=NASTY, overlay=f"overlays/{NASTY}"),
        {"image": NASTY, "error": NASTY},
        entry("\udcff.png", 0.5),
    ]
    for name in (NASTY, f"overlays/{NASTY}"):  # which has a / in it
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    elements = Elements(Report(NASTY, [NASTY], [NASTY], entries, {}, folder=tmp_path, pictures=tmp_path).html())
    known = {"html", "meta", "title", "style", "h1", "h2", "p", "b", "span", "nav", "a", "svg", "rect", "line", "text"}
    assert {name for name, _ in elements.elements} <= known | {"main", "article", "div", "i", "u", "br"}
    assert not [name for _, attributes in elements.elements for name in attributes if name.startswith("on")]
    assert len(elements.of("a")) == 4 + 3
    for attributes in elements.of("a"):
        assert re.fullmatch(r"#[a-z]+|[\w./%~-]+", attributes["href"])
    assert sum(NASTY.replace("\n", "\\n") in text for text in elements.texts) >= 5


def test_the_number_of_pictures_in_a_page_is_limited():
    kept = HighestPictures(most=3)
    for score in (0.5, 0.1, 0.9, 0.3, 0.2, 0.7):
        if kept.wants(score):
            kept.add(str(score), score, make_thumbnails(photograph(0), None))
    assert sorted(kept.kept) == ["0.5", "0.7", "0.9"]
    assert not kept.wants(0.4)


@pytest.mark.parametrize("size", [(3000, 20), (20, 3000), (1, 1), (700, 900)])
def test_thumbnails_are_small(size):
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    thumbnails = make_thumbnails(noise / np.float32(255), Image.fromarray(noise))
    assert thumbnails.size == size[::-1]
    assert all(len(address) < 60_000 for _, address in thumbnails.addresses())  # noise is the worst case


def test_no_bin_has_both_verdicts():
    scores = [0.0, 0.1399, 0.14, 0.1401, 0.39, 1.0]
    width, below, counts = score_bins(scores, 0.14)
    assert width * below == pytest.approx(0.14)
    assert sum(counts[:below]) == 2
    assert sum(counts[below:]) == 4
    assert len(counts) <= 12 + 48
    assert width * len(counts) >= 1  # all scores have their own place
    for threshold in (0.0, 1e-9, 1.0):
        _, below, counts = score_bins(scores, threshold)
        assert sum(counts) == len(scores)
        assert sum(counts[below:]) == sum(score >= threshold for score in scores)
    drawing = draw_histogram(scores, 0.14)
    assert "Histogram of 6 scores: 2 below the threshold of 0.14, 4 at or above it" in drawing
    assert "threshold 0.14" in drawing


def test_kinds_are_counted():
    entries = [entry("a", 0.1), entry("b", 0.9), entry("c", 0.4), {"image": "d", "error": "cut"}]
    assert count_kinds(entries) == {"anomalous": 2, "normal": 1, "error": 1}
    assert b"<main>\n</main>" in Report("none", [], [], [], {}).html()
