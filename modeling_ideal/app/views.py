"""What the page shows of a session, as HTML and pictures. Pure functions; every name is escaped."""

import math
from typing import Any

import numpy as np
from PIL import Image

from ..detection.contents_page import sections
from ..outlines import outlined
from ..pipeline_results import DEFAULT_THRESHOLD
from ..report.histogram import draw_histogram
from ..report.page import COLOURS, CONFIDENCE, MOST_REGIONS, escaped, resemblance, shown_share
from ..report.thumbnails import make_thumbnails
from .session import Session
from .uploads import Picture, reduced
from .verdicts import SMALL_SIDE, is_anomalous, small_overlay, verdict

DETAIL_SIDE = 640  # pixels of the selected picture
MISSED = "<p>A missed defect: mark it, or leave it, and the most suspicious region is taken.</p>"

Gallery = list[tuple[Any, str]]


def message(text: str) -> str:
    """What the user is told, a line for each sentence; empty for nothing."""
    lines = "<br>".join(escaped(line) for line in text.splitlines())
    if not lines:
        return ""
    close = '<button type="button" aria-label="close" onclick="this.parentNode.remove()">&times;</button>'
    return f'<div class="ideal-message" role="status">{close}{lines}</div>'


def new_references(session: Session) -> Gallery:
    """The pictures that are to become references, with the outline of what is marked."""
    return [(_marked(picture), _caption(picture)) for picture in session.new]


def references(session: Session) -> str:
    """The references: warnings, scores, threshold and what it promises, pictures."""
    if session.references is None:
        return (
            '<p class="ideal-note">No references yet: add pictures and calibrate, load a file or take an example.</p>'
        )
    return f'<div class="ideal-references">{sections(session.references)}</div>'


def chosen(session: Session) -> str:
    """What is said of the chosen picture."""
    picture = session.chosen_picture()
    if picture is None:
        return '<p class="ideal-note">Choose a picture above to mark its defect or to remove it.</p>'
    if not picture.defective:
        return f"<p><b>{escaped(picture.name)}</b>: a good part, with nothing to mark.</p>"
    return (
        f"<p><b>{escaped(picture.name)}</b>: mark the defect. Without marks, the model finds the defects "
        "itself; mark all of them or none.</p>"
    )


def overview(session: Session) -> Gallery:
    """The judged pictures as heat maps at the threshold of the session."""
    return [
        (
            small_overlay(judged, session.threshold),
            f"{_label(is_anomalous(judged, session.threshold))}, {judged.score:.3g}: {judged.picture.name}",
        )
        for judged in session.judged
    ]


def summary(session: Session) -> str:
    """Counts and a histogram of the scores, with the threshold in it."""
    if not session.judged:
        return '<p class="ideal-note">Nothing is judged yet.</p>'
    scores = [judged.score for judged in session.judged]
    anomalous = sum(is_anomalous(judged, session.threshold) for judged in session.judged)
    drawn = draw_histogram(scores, session.threshold)
    return (
        f'<p class="ideal-counts"><b>{len(scores)}</b> judged: <b class="over">{anomalous}</b> anomalous, '
        f'<b class="under">{len(scores) - anomalous}</b> normal, at the threshold {session.threshold:.3g}</p>{drawn}'
    )


def slider(session: Session) -> dict[str, Any]:
    """The settings of the threshold's slider: scores of most products use a small part of 0..1."""
    own = DEFAULT_THRESHOLD if session.calibration is None else session.calibration.threshold
    highest = max([own, *(judged.score for judged in session.judged)])
    digits = 1 - math.floor(math.log10(highest)) if highest > 0 else 1
    maximum = max(min(1.0, math.ceil(1.25 * highest * 10**digits) / 10**digits), session.threshold)
    return {"value": float(f"{session.threshold:.4g}"), "maximum": maximum, "step": 10.0 ** -(digits + 2)}


def details(session: Session) -> str:
    """The selected picture beside its heat map, with score, verdict and regions."""
    judged = session.selected_picture()
    if judged is None:
        return ""
    result = verdict(judged, session.calibration, session.threshold)
    side = "over" if result["label"] == "anomalous" else "under"
    lines = [f"score {result['score']:.3g}, threshold {result['threshold']:.3g}"]
    if "confidence" in result:
        lines.append(f"confidence {shown_share(result['confidence'])}")
    lines += resemblance(result)
    regions = result["regions"]
    for region in regions[:MOST_REGIONS]:
        x0, y0, x1, y1 = region["box"]
        lines.append(f"x {x0} to {x1}, y {y0} to {y1}: score {region['score']:.3g}, {region['area']} pixels")
    if len(regions) > MOST_REGIONS:
        lines.append(f"and {len(regions) - MOST_REGIONS} more regions")
    pair = make_thumbnails(judged.picture.shown, result["overlay"], side=DETAIL_SIDE)
    images = "".join(f'<img src="{address}" alt="{name}">' for name, address in pair.addresses())
    return (
        f'<div class="ideal-details"><h3>{escaped(judged.picture.name)}: <span class="{side}">{result["label"]}</span>'
        f'</h3><div class="ideal-pair">{images}</div><p>{"<br>".join(escaped(line) for line in lines)}</p>'
        f'<p class="ideal-note">{COLOURS}. {CONFIDENCE}.</p></div>'
    )


def canvas(picture: Picture | None) -> dict[str, Any] | None:
    """The value of an editor: the picture to paint over, without anything painted."""
    if picture is None:
        return None
    return {"background": Image.fromarray(reduced(picture.shown, DETAIL_SIDE)), "layers": [], "composite": None}


def enlarged(picture: Picture) -> np.ndarray:
    """The picture to draw boxes on, uint8: its longer side is always `DETAIL_SIDE`, so that a finger can point."""
    scale = DETAIL_SIDE / max(picture.shown.shape[:2])
    height, width = (max(1, round(side * scale)) for side in picture.shown.shape[:2])
    return np.asarray(Image.fromarray(picture.shown).resize((width, height), Image.Resampling.BILINEAR))


def _label(anomalous: bool) -> str:
    return "anomalous" if anomalous else "normal"


def _caption(picture: Picture) -> str:
    if not picture.defective:
        return f"good: {picture.name}"
    kind = picture.defect_type or "defective"
    return f"{kind}: {picture.name}{'' if picture.mask is not None else ', not marked'}"


def _marked(picture: Picture) -> Image.Image:
    small = reduced(picture.shown, SMALL_SIDE)
    if picture.mask is None:
        return Image.fromarray(small)
    mask = Image.fromarray(picture.mask).resize(small.shape[1::-1], Image.Resampling.NEAREST)
    return Image.fromarray(outlined(small, np.asarray(mask)))
