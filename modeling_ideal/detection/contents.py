"""What is in a references file, in words: `ideal references --show`."""

from pathlib import Path
from typing import NamedTuple

from ..reference_previews import Preview
from ..references import IdealReferences
from ..threshold import Calibration
from ..writing.tables import text_table


class Entry(NamedTuple):
    """One reference of a file."""

    kind: str  # "normal" or "abnormal"
    number: int  # from 1, among its kind
    preview: Preview | None
    defect_type: str
    score: float | None  # as if it were new; None if it has none of its own
    equal_to: int | None  # the number of an earlier reference of its kind that is the same picture

    @property
    def name(self) -> str:
        """The name of its file, or what else to call it."""
        return (self.preview and self.preview.name) or f"{self.kind} {self.number}"


def entries(references: IdealReferences) -> list[Entry]:
    """The references of a file, one after another."""
    found = []
    for kind in ("normal", "abnormal"):
        count = getattr(references, f"num_{kind}")
        previews = [None] * count if references.previews is None else getattr(references.previews, kind)
        group = references.pictures and getattr(references.pictures, kind)
        distinct = group.distinct() if group else [[index] for index in range(count)]
        known = () if references.calibration is None else getattr(references.calibration, f"{kind}_scores")
        judged = group.scored() if group and len(known) < len(distinct) else distinct
        scores = dict(zip((equal[0] for equal in judged), known, strict=True)) if len(known) == len(judged) else {}
        first = {index: equal[0] for equal in distinct for index in equal}
        for index in range(count):
            found.append(
                Entry(
                    kind,
                    index + 1,
                    previews[index],
                    references.types[index] if kind == "abnormal" and references.types else "",
                    scores.get(first[index]),
                    None if first[index] == index else first[index] + 1,
                )
            )
    return found


def facts(references: IdealReferences, path: Path) -> list[tuple[str, str]]:
    """What the file is, as pairs of a heading and words."""
    marks = {"given": ", defects marked", "estimated": ", defects found by the model", "none": ""}
    counts = f"{references.num_normal} normal, {references.num_abnormal} abnormal{marks[references.mask_source]}"
    size = (references.processing or {}).get("size")
    seen = "in tiles of {} x {} pixels".format(*references.tile_size) if references.tile_size else "whole pictures"
    if size and not references.tile_size:
        seen += " at {} x {} pixels".format(*size)
    can = "yes" if references.pictures is not None else "no, it does not keep the features of its pictures"
    kept = "yes" if references.previews is not None else "no"
    most = None if references.pictures is None else references.pictures.max_patches
    limited = [] if most is None else [("normal patches", f"{len(references.normals(0)[0])}, at most {most} are kept")]
    return [
        ("references", counts),
        *limited,
        ("types", ", ".join(dict.fromkeys(references.types)) or "none given"),
        ("seen as", seen),
        ("made by", f"the model {references.fingerprint[:12]}"),
        ("can be extended", can),
        ("small pictures", kept),
        ("size", f"{path.stat().st_size / 1e6:.1f} MB"),
    ]


def promises(calibration: Calibration | None) -> list[str]:
    """What the threshold promises, a sentence each; warnings say what it does not."""
    if calibration is None:
        return ["There is no threshold of its own: pictures are judged by 0.5, which fits no product."]
    sentences = [
        f"Threshold {calibration.threshold:.3g}: of new good parts like these, about {calibration.false_alarm:.1%} "
        "are expected to reach it and raise a false alarm."
    ]
    if calibration.abnormal_scores:
        found = sum(score >= calibration.threshold for score in calibration.abnormal_scores)
        sentences.append(
            f"Of {len(calibration.abnormal_scores)} scores of known defects, each judged as if it were new, {found} "
            "reach it."
        )
    return sentences


def scored(references: IdealReferences) -> list[str]:
    """What was scored as if it were new, a sentence for each kind of which that is not every picture."""
    sentences = []
    for kind in ("normal", "abnormal"):
        scores = () if references.calibration is None else getattr(references.calibration, f"{kind}_scores")
        known = [entry for entry in entries(references) if entry.kind == kind and entry.equal_to is None]
        if scores and not any(entry.score is not None for entry in known):
            sentences.append(
                f"The {kind} scores are of {len(scores)} altered copies or parts of pictures: {min(scores):.3g} to "
                f"{max(scores):.3g}."
            )
        elif 0 < len(scores) < len(known):
            sentences.append(
                f"Of {len(known)} different {kind} references {len(scores)}, chosen by lot, were scored as if they "
                "were new, each against all others."
            )
    return sentences


def describe(references: IdealReferences, path: Path) -> str:
    """What is in a references file, for a terminal."""
    lines = [str(path), *(f"  {heading + ':':17}{words}" for heading, words in facts(references, path)), ""]
    head, rows = ["reference", "kind", "type", "pixels", "score"], []
    for entry in entries(references):
        size = "{1} x {0}".format(*entry.preview.size) if entry.preview else ""
        score = "" if entry.score is None else f"{entry.score:.3g}"
        row = [entry.name, entry.kind, entry.defect_type, size, score]
        rows.append(row if entry.equal_to is None else [*row, f"the same as {entry.kind} {entry.equal_to}"])
    lines += [text_table(head, rows, words=3), ""]
    lines += [*promises(references.calibration), *scored(references)]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in references.warnings)])
