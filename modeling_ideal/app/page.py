"""The page: what is where, and what happens on a click. All it does is in `Session`, all it shows in `views`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from . import views
from .detector import Detector
from .examples import NAMES
from .marking import MarkingTools
from .results import write_references, write_results
from .session import Session
from .style import INTRODUCTION
from .uploads import LIMITS

SECONDS_BETWEEN_CLEANINGS, SECONDS_KEPT = 3600, 24 * 3600  # of uploaded files

Shown = dict[Any, Any]  # new values by component
Action = Callable[..., str]  # takes the session, a way to tell progress, and values; returns what to tell the user


class Page:
    """The components of the page, and what connects them.

    Args:
        detector: the model that all sessions share.
    """

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        with gr.Blocks(
            title="IDEAL", analytics_enabled=False, delete_cache=(SECONDS_BETWEEN_CLEANINGS, SECONDS_KEPT)
        ) as self.blocks:
            self.session = gr.State(lambda: Session())  # not the class: Gradio would take it for a record
            gr.HTML(INTRODUCTION)
            self.told = gr.HTML(elem_id="messages")
            with gr.Tabs():
                with gr.Tab("1. References"):
                    self._lay_out_references()
                with gr.Tab("2. Inspect"):
                    self._lay_out_inspection()
            self._connect_references()
            self._connect_inspection()

    def _lay_out_references(self) -> None:
        with gr.Row():
            self.examples = [gr.Button(f"{name.capitalize()} example", size="sm", min_width=90) for name in NAMES]
        with gr.Row():
            self.good = _drop_zone("Good parts", "drop-good")
            self.defective = _drop_zone("Defective parts", "drop-defective")
        self.new = _gallery("New references: choose one to mark its defect", "new-references")
        with gr.Group(visible=False) as self.choice:
            self.about = gr.HTML(padding=True)
            with gr.Column(visible=False) as self.marking:
                self.tools = MarkingTools("mark", "Mark the defect")
            self.remove = gr.Button("Remove this picture", size="sm", elem_id="remove")
        self.calibrate = gr.Button("Calibrate", variant="primary", elem_id="calibrate")
        self.references = gr.HTML(views.references(Session()), elem_id="references")
        with gr.Accordion("Keep, load or change references", open=False):
            with gr.Row():
                self.save = gr.Button("Make the references file", size="sm", elem_id="save")
                self.change = gr.Button("Change the references", size="sm", elem_id="change")
                self.clear = gr.Button("Clear everything", size="sm", variant="stop", elem_id="clear")
            self.saved = gr.File(label="References file", interactive=False, visible=False, elem_id="saved")
            self.load = gr.File(label="Load a references file", file_types=[".safetensors"], elem_id="load")
        gr.HTML(f'<p class="ideal-note">{LIMITS}</p>')

    def _lay_out_inspection(self) -> None:
        self.queries = _drop_zone("Pictures to judge", "drop-queries")
        self.threshold = gr.Slider(
            0,
            1,
            Session().threshold,
            step=0.001,
            label="Threshold",
            info="A picture with this score or a higher one is anomalous.",
            buttons=[],
            elem_id="threshold",
        )
        self.reset = gr.Button("Back to the calibrated threshold", size="sm", elem_id="reset")
        self.summary = gr.HTML(views.summary(Session()), elem_id="summary")
        self.overview = _gallery("Heat maps: choose one", "overview")
        self.details = gr.HTML(elem_id="details")
        self.wrong = gr.Button("This was wrong", visible=False, elem_id="wrong")
        with gr.Group(visible=False) as self.missed:
            gr.HTML(views.MISSED, padding=True)
            self.missed_tools = MarkingTools("missed", "Add it to the references")
        self.export = gr.Button("Make results and report", elem_id="export")
        self.files = gr.File(
            label="Results and report", file_count="multiple", interactive=False, visible=False, elem_id="files"
        )

    def _connect_references(self) -> None:
        detector, shown, everything = self.detector, self._reference_part, self._everything
        long: dict[str, Any] = {"show_progress_on": self.references}
        for button, name in zip(self.examples, NAMES, strict=True):
            self._on(button.click, _taking(detector, name), everything, **long)
        for zone, defective in ((self.good, False), (self.defective, True)):
            self._on(zone.upload, _adding(defective), shown, [zone], emptied=zone, show_progress_on=zone)
        self._on_select(self.new, "chosen", shown)
        self._on(self.tools.button.click, _mark, shown, self.tools.inputs(), show_progress="hidden")
        self._on(self.remove.click, lambda session, progress: session.remove(), shown, show_progress="hidden")
        self._on(self.calibrate.click, _calibrating(detector), everything, **long)
        self._on(self.change.click, lambda session, progress: session.change(detector), everything, **long)
        self._on(self.clear.click, lambda session, progress: session.clear(), everything, **long)
        self._on(self.load.upload, _loading(detector), everything, [self.load], emptied=self.load, **long)
        self._on_file(self.save.click, write_references, self.saved)

    def _connect_inspection(self) -> None:
        detector, shown = self.detector, self._inspection_part
        long: dict[str, Any] = {"show_progress_on": self.summary}
        self._on(self.queries.upload, _judging(detector), shown, [self.queries], emptied=self.queries, **long)
        self._on(
            self.threshold.input,
            lambda session, progress, value: session.move(value),
            self._verdict_part,
            [self.threshold],
            show_progress="hidden",
            trigger_mode="always_last",
        )
        self._on(self.reset.click, lambda session, progress: session.reset_threshold(), shown, show_progress="hidden")
        self._on_select(self.overview, "selected", self._selected_part)
        marked: dict[str, Any] = {"inputs": self.missed_tools.inputs(), "show_progress_on": self.details}
        self._on(self.wrong.click, _wrong(detector), self._everything, show_progress_on=self.details)
        self._on(self.missed_tools.button.click, _correct(detector), self._everything, **marked)
        self._on_file(self.export.click, lambda session: write_results(session, detector.model_name), self.files)

    def _reference_part(self, session: Session) -> Shown:
        picture = session.chosen_picture()
        defective = picture is not None and bool(picture.defective)
        return {
            self.new: gr.update(value=views.new_references(session), visible=bool(session.new)),
            self.choice: gr.update(visible=picture is not None),
            self.about: views.chosen(session),
            self.marking: gr.update(visible=defective),
            **self.tools.shown(picture if defective else None),
            self.tools.defect_type: "" if picture is None else picture.defect_type,
            self.references: views.references(session),
            self.saved: gr.update(value=None, visible=False),
        }

    def _inspection_part(self, session: Session) -> Shown:
        return {self.threshold: gr.update(**views.slider(session)), **self._verdict_part(session)}

    def _verdict_part(self, session: Session) -> Shown:
        return {
            self.summary: views.summary(session),
            self.overview: gr.update(value=views.overview(session), visible=bool(session.judged)),
            self.files: gr.update(value=None, visible=False),
            **self._selected_part(session),
        }

    def _selected_part(self, session: Session) -> Shown:
        judged = session.selected_picture()
        return {
            self.details: views.details(session),
            self.wrong: gr.update(visible=judged is not None and not session.marking_missed),
            self.missed: gr.update(visible=session.marking_missed),
            **self.missed_tools.shown(judged.picture if judged and session.marking_missed else None),
        }

    def _everything(self, session: Session) -> Shown:
        return {**self._reference_part(session), **self._inspection_part(session)}

    def _on(
        self,
        event: Callable,
        action: Action,
        show: Callable[[Session], Shown],
        inputs: Sequence[Any] = (),
        emptied: Any = None,
        **options: Any,
    ) -> None:
        """Connect an event with an action, and show the session after it, or what was wrong.

        Args:
            event: the event of a component.
            action: what happens; its ValueError is for the user.
            show: gives what changes on the page.
            inputs: components whose values the action takes.
            emptied: a component that is empty again afterwards.
            options: further arguments of the event.
        """
        tracker = gr.Progress()

        def handle(session: Session, progress: Any = tracker, *values: Any) -> Shown:
            back = {} if emptied is None else {emptied: None}
            try:
                text = action(session, lambda items, words: progress.tqdm(items, desc=words), *values)
            except ValueError as error:  # what is half painted or drawn stays as it is
                return {self.session: session, self.told: views.message(str(error)), **back}
            return {self.session: session, self.told: views.message(text), **show(session), **back}

        outputs = [self.session, self.told, *show(Session()), *([] if emptied is None else [emptied])]
        event(handle, [self.session, *inputs], outputs, **{"api_visibility": "private", **options})

    def _on_select(self, gallery: gr.Gallery, name: str, show: Callable[[Session], Shown]) -> None:
        """Keep the place in a gallery that the user has chosen, in the attribute `name` of the session."""

        def handle(session: Session, event: gr.SelectData) -> Shown:
            session.choose(name, event.index)
            return {self.session: session, **show(session)}

        outputs = [self.session, *show(Session())]
        gallery.select(handle, [self.session], outputs, show_progress="hidden", api_visibility="private")

    def _on_file(self, event: Callable, write: Callable[[Session], Any], files: gr.File) -> None:
        """Write files on an event, and offer them to be downloaded."""

        def handle(session: Session) -> Shown:
            try:
                written = write(session)
            except ValueError as error:
                return {self.told: views.message(str(error)), files: gr.update(value=None, visible=False)}
            names = [str(path) for path in written] if isinstance(written, list) else str(written)
            return {self.told: "", files: gr.update(value=names, visible=True)}

        event(handle, [self.session], [self.told, files], api_visibility="private")


def _drop_zone(label: str, name: str) -> gr.File:
    return gr.File(label=label, file_count="multiple", file_types=["image"], height=150, elem_id=name)


def _gallery(label: str, name: str) -> gr.Gallery:
    return gr.Gallery(
        label=label,
        columns=5,
        object_fit="contain",
        allow_preview=False,
        interactive=False,
        buttons=[],
        format="jpeg",
        visible=False,
        elem_id=name,
        elem_classes="ideal-gallery",
    )


def _taking(detector: Detector, name: str) -> Action:
    return lambda session, progress: session.take_example(detector, name, progress)


def _adding(defective: bool) -> Action:
    return lambda session, progress, files: session.add_references([Path(file) for file in files], defective)


def _calibrating(detector: Detector) -> Action:
    return lambda session, progress: session.calibrate(detector, progress)


def _loading(detector: Detector) -> Action:
    return lambda session, progress, file: session.load(detector, Path(file))


def _judging(detector: Detector) -> Action:
    return lambda session, progress, files: session.judge(detector, [Path(file) for file in files], progress)


def _mark(session: Session, progress: Any, *drawn: Any) -> str:
    return session.mark(*MarkingTools.marks(session.chosen_picture(), *drawn))


def _wrong(detector: Detector) -> Action:
    """A missed defect can be marked first; in a good part there is nothing to mark."""

    def action(session: Session, progress: Any) -> str:
        return session.begin_marking() if session.missed_defect() else session.correct(detector, progress=progress)

    return action


def _correct(detector: Detector) -> Action:
    def action(session: Session, progress: Any, *drawn: Any) -> str:
        judged = session.selected_picture()
        mask, defect_type = MarkingTools.marks(None if judged is None else judged.picture, *drawn)
        return session.correct(detector, mask, defect_type, progress)

    return action
