"""What is in a references file, as a page that needs no other file."""

import base64
from html import escape
from io import BytesIO
from pathlib import Path

from PIL import Image

from ..outlines import outlined
from ..reference_previews import Preview
from ..references import IdealReferences
from .contents import Entry, entries, facts, promises, scored

SHOWN = 224  # longest side of a picture on the page, in pixels
MARK = "<meta name='generator' content='ideal references --show'>"  # by which it knows its own pages
STRIP = (640, 74)  # width and height of the drawing of the scores
MARGIN = 24

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1080px; padding: 0 1em; color: #1c2024 }
h1 { font-size: 1.5em; overflow-wrap: anywhere } h2 { font-size: 1.15em; margin-top: 1.8em }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2em 1.2em } dt { color: #60646c } dd { margin: 0 }
.grid { display: flex; flex-wrap: wrap; gap: 14px }
figure { margin: 0; width: 224px } figcaption { font-size: 13px; overflow-wrap: anywhere }
img, .none { width: 224px; border-radius: 4px; display: block }
.none { height: 120px; background: #eef0f2; color: #60646c; text-align: center; line-height: 120px }
.over { color: #b00020 } .under { color: #16803d }
.warning { background: #fff6e0; border-left: 4px solid #e5a000; padding: .5em .8em; margin: .5em 0 }
svg { max-width: 100%; height: auto }
@media (max-width: 520px) { svg text { font-size: 20px } }
@media print { figure { break-inside: avoid } }
"""


def page(references: IdealReferences, path: Path) -> str:
    """Make the page of a references file."""
    listed = "".join(
        f"<dt>{escape(heading)}</dt><dd>{escape(words)}</dd>" for heading, words in facts(references, path)
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"{MARK}<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(path.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>References: {escape(path.name)}</h1><dl>{listed}</dl>{sections(references)}</body></html>\n"
    )


def sections(references: IdealReferences) -> str:
    """Make the part of the page that is about the references themselves: warnings, calibration, pictures."""
    warnings = "".join(f"<p class='warning'><b>Warning:</b> {escape(warning)}</p>" for warning in references.warnings)
    sentences = " ".join(map(escape, [*promises(references.calibration), *scored(references)]))
    threshold = None if references.calibration is None else references.calibration.threshold
    groups = []
    for kind, heading in (("normal", "Good parts"), ("abnormal", "Defective parts")):
        figures = [_figure(entry, threshold) for entry in entries(references) if entry.kind == kind]
        groups += [f"<h2>{heading}</h2><div class='grid'>{''.join(figures)}</div>"] if figures else []
    return f"{warnings}<h2>Calibration</h2><p>{sentences}</p>{_strip(references)}{''.join(groups)}"


def _figure(entry: Entry, threshold: float | None) -> str:
    words = [f"<b>{escape(entry.name)}</b>"]
    if entry.defect_type:
        words.append(escape(entry.defect_type))
    if entry.score is not None and threshold is not None:
        side = "over" if entry.score >= threshold else "under"
        words.append(f"score <span class='{side}'>{entry.score:.3g}</span>")
    if entry.equal_to is not None:
        words.append(f"the same picture as {entry.kind} {entry.equal_to}")
    shown = _image(entry.preview) if entry.preview else "<div class='none'>no picture kept</div>"
    return f"<figure>{shown}<figcaption>{', '.join(words)}</figcaption></figure>"


def _image(preview: Preview) -> str:
    picture = Image.fromarray(outlined(preview.picture(), preview.marked()))
    picture.thumbnail((SHOWN, SHOWN))
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    content = base64.b64encode(buffer.getvalue()).decode()
    return f"<img src='data:image/jpeg;base64,{content}' alt='{escape(preview.name, quote=True)}'>"


def _strip(references: IdealReferences) -> str:
    """Draw the scores of the references on a line, with the threshold."""
    calibration = references.calibration
    if calibration is None:
        return ""
    groups = {"under": calibration.normal_scores, "over": calibration.abnormal_scores}
    values = [calibration.threshold, *calibration.normal_scores, *calibration.abnormal_scores]
    low, high = min(values), max(values)
    width, height = STRIP

    def place(value: float) -> float:
        return MARGIN + (width - 2 * MARGIN) * ((value - low) / (high - low) if high > low else 0.5)

    at = place(calibration.threshold)
    dots = "".join(
        f"<circle cx='{place(score):.1f}' cy='{22 if name == 'under' else 42}' r='5' class='{name}' "
        f"fill='currentColor' fill-opacity='.7'><title>{score:.3g}</title></circle>"
        for name, scores in groups.items()
        for score in scores
    )
    anchor = "start" if at < width / 3 else "end" if at > 2 * width / 3 else "middle"
    return (
        f"<svg viewBox='0 0 {width} {height}' width='{width}' role='img' aria-label='scores of the references'>"
        f"<line x1='{at:.1f}' x2='{at:.1f}' y1='6' y2='56' stroke='#1c2024' stroke-dasharray='4 3'/>"
        f"<text x='{at:.1f}' y='70' font-size='12' text-anchor='{anchor}'>threshold {calibration.threshold:.3g}</text>"
        f"{dots}</svg><p>Green dots: good parts, each judged as if it were new. Red dots: defective parts.</p>"
    )
