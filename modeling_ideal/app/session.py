"""What one user has given and been told. A session knows no other; the model that they share is given with a call."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from ..pipeline_results import DEFAULT_THRESHOLD
from ..references import IdealReferences
from ..threshold import Calibration
from .detector import Detector
from .examples import make_example
from .progress import Progress, silent
from .uploads import MOST_QUERIES, MOST_REFERENCE_BYTES, MOST_REFERENCES, Picture, read_pictures
from .verdicts import Judged, is_anomalous, keep, suspicious_mask


@dataclass
class Session:
    """The state of one user's page. Methods that act return what to tell the user; ValueError says what was wrong.

    Args:
        new: pictures that are to become references.
        own: pictures of this session that are references already.
        loaded: the references file that was loaded, if any.
        references: what pictures are judged with: those of the file and `own`.
        calibration: their calibration.
        judged: the pictures that were judged.
        threshold: what they are judged by; the user may move it.
        chosen: the place among `new` that the user has chosen; None for none.
        selected: the same among `judged`.
        marking_missed: whether the user is marking the defect in the selected picture, which was missed.
    """

    new: list[Picture] = field(default_factory=list)
    own: list[Picture] = field(default_factory=list)
    loaded: IdealReferences | None = None
    references: IdealReferences | None = None
    calibration: Calibration | None = None
    judged: list[Judged] = field(default_factory=list)
    threshold: float = DEFAULT_THRESHOLD
    chosen: int | None = None
    selected: int | None = None
    marking_missed: bool = False
    _folder: tempfile.TemporaryDirectory | None = None

    def folder(self) -> Path:
        """A folder for files of this session; it vanishes with it."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="ideal-app-")
        return Path(self._folder.name)

    def num_references(self) -> int:
        """The number of references, with those that are still to be learnt."""
        known = self.references
        return len(self.new) + (0 if known is None else known.num_normal + known.num_abnormal)

    def add_references(self, files: Sequence[Path], defective: bool) -> str:
        """Add uploaded pictures of good or of defective parts."""
        names = [picture.name for picture in [*self.new, *self.own]]
        room = max(0, MOST_REFERENCES - self.num_references())
        pictures, refused = read_pictures(files, names, len(names) + room, defective)
        self.new = [*self.new, *pictures]
        if defective and pictures:
            self.chosen = len(self.new) - len(pictures)  # for its defect to be marked
        return "\n".join(refused)

    def chosen_picture(self) -> Picture | None:
        """The new reference that the user has chosen."""
        return None if self.chosen is None or self.chosen >= len(self.new) else self.new[self.chosen]

    def mark(self, mask: np.ndarray | None, defect_type: str) -> str:
        """Mark the defect in the chosen picture, or take its mark away."""
        picture = self.chosen_picture()
        if picture is None or not picture.defective:
            raise ValueError("expected a chosen picture of a defective part, got none")
        self.new = [picture.marked(mask, defect_type) if each is picture else each for each in self.new]
        unmarked = [place for place, each in enumerate(self.new) if each.defective and each.mask is None]
        self.chosen = next(iter(unmarked), None) if mask is not None else self.chosen
        return "" if mask is not None else f"{picture.name}: nothing is painted or drawn, so its defect is not marked."

    def choose(self, name: str, place: int | None) -> None:
        """Keep the place that the user chose, in the attribute `name`: `"chosen"` or `"selected"`."""
        setattr(self, name, place)
        self.marking_missed = False

    def remove(self) -> str:
        """Take the chosen picture away again."""
        picture = self.chosen_picture()
        if picture is None:
            raise ValueError("expected a chosen picture, got none")
        self.new, self.chosen = [each for each in self.new if each is not picture], None
        return ""

    def load(self, detector: Detector, file: Path) -> str:
        """Load a references file in the place of the references of this session."""
        size = file.stat().st_size
        if size > MOST_REFERENCE_BYTES:
            most = f"{MOST_REFERENCE_BYTES / 1e6:.0f} MB"
            raise ValueError(f"{file.name}: expected at most {most}, got {size / 1e6:.1f} MB")
        try:
            references = detector.load(file)
        except ValueError as error:
            raise ValueError(f"{file.name}: {str(error).replace(str(file), file.name)}") from error
        self.loaded, self.own = references, []
        self._judge_with(detector, references, [each.picture for each in self.judged])
        return f"{file.name} is loaded."

    def calibrate(self, detector: Detector, progress: Progress = silent) -> str:
        """Make the new pictures references, with those that there are, and judge again what was judged."""
        if not self.new:
            raise ValueError("expected pictures of good or defective parts first, got no new one")
        references = detector.learn(self.references, self.new)
        self.own, self.new, self.chosen = [*self.own, *self.new], [], None
        self._judge_with(detector, references, [each.picture for each in self.judged], progress)
        return ""

    def change(self, detector: Detector) -> str:
        """Take the pictures of this session back out of the references, to be changed.

        What was judged stays as it is until there are references again.
        """
        if not self.own:
            raise ValueError("expected references that were added on this page, got none")
        self.new, self.own, self.chosen, self.references = [*self.own, *self.new], [], None, self.loaded
        if self.loaded is not None:
            self._judge_with(detector, self.loaded, [each.picture for each in self.judged])
        return "The references can be changed; calibrate again after that."

    def take_example(self, detector: Detector, name: str, progress: Progress = silent) -> str:
        """Begin anew with an example: references, calibration and verdicts."""
        folder = self.folder() / name
        folder.mkdir(exist_ok=True)
        example = make_example(name, folder, progress)
        self.clear()
        self.new = example.references
        self.calibrate(detector)
        self.judge(detector, example.queries, progress)
        return f"The example {name} is ready: see its references here, and its verdicts under Inspect."

    def clear(self) -> str:
        """Forget everything but the folder."""
        empty = Session(_folder=self._folder)
        for each in fields(self):
            setattr(self, each.name, getattr(empty, each.name))
        return ""

    def judge(self, detector: Detector, files: Sequence[Path], progress: Progress = silent) -> str:
        """Judge uploaded pictures."""
        if self.references is None:
            raise ValueError("expected references first: add pictures and calibrate, load a file, or take an example")
        references = self.references
        pictures, refused = read_pictures(files, [each.picture.name for each in self.judged], MOST_QUERIES)
        scored = self._scored(detector, references, pictures, progress)
        if self.references is not references:
            raise ValueError("expected the same references until all is judged, got others: add the pictures again")
        self.judged = [*self.judged, *scored]
        self._select_highest()
        return "\n".join(refused)

    def selected_picture(self) -> Judged | None:
        """The judged picture that the user has selected."""
        return None if self.selected is None or self.selected >= len(self.judged) else self.judged[self.selected]

    def missed_defect(self) -> bool:
        """Whether the selected picture, if its verdict is wrong, shows a defect."""
        judged = self.selected_picture()
        return judged is not None and not is_anomalous(judged, self.threshold)

    def begin_marking(self) -> str:
        """Let the user mark the defect in the selected picture, which was missed."""
        self.marking_missed = True
        return ""

    def correct(
        self, detector: Detector, mask: np.ndarray | None = None, defect_type: str = "", progress: Progress = silent
    ) -> str:
        """Make the selected picture, whose verdict was wrong, a reference: of a good part, or with a defect.

        A defect that is not marked, among references whose defects are, is taken to be in the most suspicious region.

        Args:
            detector: the model.
            mask: where the missed defect is, at the size of the picture shown; None if it is not marked.
            defect_type: its type.
            progress: tells the user how far it is.
        """
        judged = self.selected_picture()
        if judged is None or self.references is None:
            missing = "references" if self.references is None else "picture"
            raise ValueError(f"expected references and a selected picture, got no {missing}")
        if self.num_references() >= MOST_REFERENCES:
            raise ValueError(f"expected at most {MOST_REFERENCES} references, got one more")
        added = replace(judged.picture, defective=False)
        if self.missed_defect():
            if mask is None and self.references.mask_source == "given":
                mask = suspicious_mask(judged, self.threshold)
            added = judged.picture.marked(mask, defect_type)
        before = self.threshold
        references = detector.learn(self.references, [added])
        self.own = [*self.own, added]
        rest = [each.picture for each in self.judged if each is not judged]
        self._judge_with(detector, references, rest, progress)
        kind = "defective" if added.defective else "good"
        return (
            f"{added.name} is now a reference of a {kind} part. The threshold was {before:.3g} and is "
            f"{self.threshold:.3g}; the other pictures were judged again."
        )

    def _judge_with(
        self, detector: Detector, references: IdealReferences, pictures: Sequence[Picture], progress: Progress = silent
    ) -> None:
        """Judge pictures with other references, and by their threshold."""
        calibration = detector.calibration(references)
        judged = self._scored(detector, references, pictures, progress)
        self.references, self.calibration, self.judged = references, calibration, judged
        self.reset_threshold()
        self._select_highest()

    def reset_threshold(self) -> str:
        """Judge by the threshold of the references again."""
        return self.move(DEFAULT_THRESHOLD if self.calibration is None else self.calibration.threshold)

    def move(self, threshold: float) -> str:
        """Judge by another threshold; the scores stay as they are."""
        self.threshold, self.marking_missed = threshold, False
        return ""

    def _scored(
        self, detector: Detector, references: IdealReferences, pictures: Sequence[Picture], progress: Progress
    ) -> list[Judged]:
        told = progress(pictures, "Judging")
        return [keep(picture, *detector.judge(references, picture)) for picture in told]

    def _select_highest(self) -> None:
        scores = [each.score for each in self.judged]
        self.choose("selected", scores.index(max(scores)) if scores else None)
