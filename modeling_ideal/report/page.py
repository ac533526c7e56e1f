"""The page: a summary with a histogram, then each picture with its verdict, highest score first."""

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category
from urllib.parse import quote

from ..pipeline_results import UNKNOWN
from .histogram import draw_histogram
from .style import STYLE
from .thumbnails import Thumbnails

ANOMALOUS, NORMAL, ERROR = "anomalous", "normal", "error"  # kinds of pictures, and classes in the page
MOST_REGIONS = 5  # that are listed and framed, of each picture
CONFIDENCE = "The confidence is the estimated share of good parts that score lower"
COLOURS = "Green is the threshold, red is far above it; the scale is the same for all, and a good part has no red"
HOVERING = "Hover over or tap a heat map to see the picture itself"

Entry = Mapping[str, Any]
"""A result: `image` with `error`, or with `score`, `threshold`, `label` and what else `ideal detect` writes."""


@dataclass
class Report:
    """What a page says.

    Args:
        title: the heading.
        facts: what was judged with what, one line each.
        warnings: what a reader should know before trusting the verdicts.
        entries: the results to show.
        thumbnails: small pictures by the `overlay` of an entry; the others are shown without.
        folder: where the page will be, and overlays, for links to them; None for no links.
        pictures: the folder that the names of pictures are relative to.
        references: thumbnails of references with captions.
        counts: numbers of pictures of each kind, if they are more than the entries.
        links: names and addresses of other pages.
        refresh: seconds after which a browser loads the page again; None for never.
    """

    title: str
    facts: Sequence[str]
    warnings: Sequence[str]
    entries: Sequence[Entry]
    thumbnails: Mapping[str, Thumbnails]
    folder: Path | None = None
    pictures: Path = Path()
    references: Sequence[tuple[Thumbnails, str]] = ()
    counts: Mapping[str, int] | None = None
    links: Sequence[tuple[str, str]] = ()
    refresh: float | None = None

    def html(self) -> bytes:
        """The page, complete in itself."""
        judged = [entry for entry in self.entries if "error" not in entry]
        counts = self.counts or count_kinds(self.entries)
        highest = max([0.0, *(max(entry["score"], 1.25 * entry["threshold"]) for entry in judged)])
        ordered = sorted(self.entries, key=lambda entry: -entry.get("score", float("inf")))  # errors first
        parts = [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="refresh" content="{self.refresh:.0f}">' if self.refresh else "",
            f"<title>{escaped(self.title)}</title><style>{STYLE}</style>",
            f"<h1>{escaped(self.title)}</h1>",
            *(f'<p class="facts">{escaped(fact)}</p>' for fact in self.facts),
            self._links(),
            *(f'<p class="warning"><b>Warning:</b> {escaped(warning)}</p>' for warning in self.warnings),
            *(f'<span class="target" id="{kind}"></span>' for kind in ("all", ANOMALOUS, NORMAL, ERROR)),
            _counts(counts),
            self._histogram(judged),
            self._references(),
            "<h2>Pictures, highest score first</h2>",
            f'<p class="note screen">{HOVERING}.</p>',
            f'<p class="note">{COLOURS}. {CONFIDENCE}.</p>',
            "<main>",
            *(self._card(entry, highest) for entry in ordered),
            "</main></html>\n",
        ]
        return "\n".join(part for part in parts if part).encode("utf-8", "backslashreplace")

    def _histogram(self, judged: Sequence[Entry]) -> str:
        if not judged:
            return ""
        # The verdicts of a picture may be by another threshold, if the references changed: then the latest counts.
        return draw_histogram([entry["score"] for entry in judged], judged[-1]["threshold"])

    def _links(self) -> str:
        links = [f'<a href="{quote(address)}">{escaped(name)}</a>' for name, address in self.links]
        return f'<p class="facts screen">See also: {", ".join(links)}</p>' if links else ""

    def _references(self) -> str:
        if not self.references:
            return ""
        figures = []
        for thumbnails, caption in self.references:
            image = _image(thumbnails.original, thumbnails.size)
            figures.append(f"<figure>{image}<figcaption>{escaped(caption)}</figcaption></figure>")
        return f'<h2>References</h2><div class="references">{"".join(figures)}</div>'

    def _card(self, entry: Entry, highest: float) -> str:
        kind = kind_of(entry)
        name = f'<div class="name">{self._link(self.pictures / entry["image"], escaped(entry["image"]))}</div>'
        if kind == ERROR:
            text = f'<div class="error-text">{escaped(reason(entry))}</div>'
            return f'<article class="card error">{name}<div class="verdict error">not judged</div>{text}</article>'
        thumbnails = self.thumbnails.get(entry.get("overlay", ""))
        lines = [f"score {entry['score']:.3g}, threshold {entry['threshold']:.3g}"]
        if "confidence" in entry:
            lines.append(f"confidence {shown_share(entry['confidence'])}")
        lines += resemblance(entry)
        if "time" in entry:
            lines.append(f"judged at {entry['time'][:19].replace('T', ' ')} UTC")
        if "truth" in entry:
            lines.append(f"in truth: {entry['truth']}")
        text = "<br>".join(escaped(line) for line in lines)
        if self.folder is not None and entry.get("overlay"):
            link = self._link(self.folder / entry["overlay"], "heat map in full size")
            text += f'<span class="screen"><br>{link}</span>'
        return (
            f'<article class="card {kind}">{_pair(entry, thumbnails) if thumbnails else ""}{name}'
            f'<div class="verdict {kind}">{escaped(entry["label"])}</div>{_scale(entry, highest)}'
            f'<div class="figures">{text}</div>{_regions(entry)}</article>'
        )

    def _link(self, path: Path, text: str) -> str:
        """A link to a file, relative to the page, if it is there; `text` is HTML."""
        if self.folder is None or not path.exists():
            return text
        try:
            relative = os.path.relpath(path, self.folder)
        except ValueError:  # on another drive
            return text
        return f'<a href="{quote(os.fsencode(Path(relative).as_posix()))}">{text}</a>'


def kind_of(entry: Entry) -> str:
    """Whether a picture is anomalous, normal or could not be judged."""
    return ERROR if "error" in entry else entry["label"]


def count_kinds(entries: Sequence[Entry]) -> dict[str, int]:
    """The number of pictures of each kind."""
    counts = {ANOMALOUS: 0, NORMAL: 0, ERROR: 0}
    for entry in entries:
        counts[kind_of(entry)] += 1
    return counts


def reason(entry: Entry) -> str:
    """Why a picture could not be judged, without its name, which stands beside."""
    return entry["error"].removeprefix(f"{entry['image']}: ")


def printable(text: str) -> str:
    """Text on one line: line breaks, other control characters and bytes that are no text are escaped."""
    return "".join(
        letter if letter.isprintable() or category(letter) == "Zs" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def escaped(text: str) -> str:
    """Text for HTML, in which no letter has a meaning; also within quotes."""
    return html.escape(printable(text), quote=True)


def _counts(counts: Mapping[str, int]) -> str:
    tiles = [("all", sum(counts.values()), "pictures"), (ANOMALOUS, counts[ANOMALOUS], "anomalous")]
    tiles += [(NORMAL, counts[NORMAL], "normal"), (ERROR, counts[ERROR], "not judged")]
    links = [f'<a class="{kind}" href="#{kind}"><b>{count}</b>{text}</a>' for kind, count, text in tiles]
    return f'<nav aria-label="Show only">{"".join(links)}</nav>'


def _image(address: str | None, size: tuple[int, int], kind: str = "", words: str = "") -> str:
    width, height = size
    shown = f'width="{width}" height="{height}" alt="{escaped(words)}"'
    return f'<img class="{kind}" src="{address}" {shown} loading="lazy">'


def _pair(entry: Entry, thumbnails: Thumbnails) -> str:
    """The picture under its overlay, which is hidden while one hovers over it, or after a click or tap."""
    name = str(entry["image"])
    words = {"original": name, "overlay": f"heat map of {name}"}
    images = [_image(address, thumbnails.size, kind, words[kind]) for kind, address in thumbnails.addresses()]
    width, height = thumbnails.size
    boxes = [region["box"] for region in entry.get("regions", ())[:MOST_REGIONS]]
    frames = [f'<rect x="{x0}" y="{y0}" width="{x1 - x0}" height="{y1 - y0}"/>' for x0, y0, x1, y1 in boxes]
    drawing = f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{"".join(frames)}</svg>'
    return (
        f'<label class="pair"><input type="checkbox" aria-label="show the picture itself">{"".join(images)}'
        f"{drawing if frames else ''}</label>"
    )


def _scale(entry: Entry, highest: float) -> str:
    """A bar as long as the score, with a mark at the threshold."""
    highest = highest or 1.0
    return (
        f'<div class="scale"><i style="width:{100 * entry["score"] / highest:.1f}%"></i>'
        f'<u style="left:{min(100 * entry["threshold"] / highest, 99):.1f}%"></u></div>'
    )


def resemblance(entry: Entry) -> list[str]:
    """What the defect looks like, if the references have types: a guess, and so no part of the verdict."""
    kind = entry.get("type")
    if not kind:
        return []
    return ["looks like no known defect" if kind == UNKNOWN else f"looks most like: {kind}"]


def shown_share(share: float) -> str:
    """A share of 0..1 in digits; one that would be rounded to 1 is not said to be certain."""
    return f"{share:.3f}" if share < 0.9995 else "> 0.999"


def _regions(entry: Entry) -> str:
    regions = entry.get("regions", ())
    if not regions:
        return ""
    items = [
        f"<li>x {x0} to {x1}, y {y0} to {y1}: score {region['score']:.3g}, {region['area']} pixels</li>"
        for region in regions[:MOST_REGIONS]
        for x0, y0, x1, y1 in [region["box"]]
    ]
    more = len(regions) - MOST_REGIONS
    items += [f"<li>and {more} more</li>"] if more > 0 else []
    count = "1 region" if len(regions) == 1 else f"{len(regions)} regions"
    return f"<details><summary>{count}</summary><ul>{''.join(items)}</ul></details>"
