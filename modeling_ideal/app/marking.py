"""The tools to mark a defect: paint or boxes, the type, and a button."""

from typing import Any

import gradio as gr
import numpy as np

from . import views
from .marks import COLOUR, Boxes, layers_of, painted_mask
from .uploads import Picture

PAINT, BOX = "paint over it", "draw a box: click on two opposite corners"
WAYS = (PAINT, BOX)


class MarkingTools:
    """The components, in the place where they are made.

    Args:
        name: begins the identifiers of the components in the page.
        button: what the button says.
    """

    def __init__(self, name: str, button: str) -> None:
        self.way = gr.Radio(list(WAYS), value=PAINT, label="To mark a defect", elem_id=f"{name}-way")
        self.editor = gr.ImageEditor(
            label="Paint over the defect",
            sources=(),
            transforms=(),
            layers=False,
            brush=gr.Brush(default_size=14, colors=[COLOUR], color_mode="fixed"),
            buttons=[],
            interactive=True,
            height=400,
            elem_id=f"{name}-editor",
        )
        with gr.Column(visible=False) as self.drawing:
            self.boxed = gr.Image(
                show_label=False,  # it would lie on a corner of the picture
                interactive=False,
                buttons=[],
                format="jpeg",
                alt_text="The picture with the boxes that are drawn on it",
                elem_id=f"{name}-boxes",
                elem_classes="ideal-boxes",
            )
            self.undo = gr.Button("Undo the last click", size="sm", elem_id=f"{name}-undo")
        self.boxes = gr.State(None)  # of the picture that is marked
        self.defect_type = gr.Textbox(label="Type of defect (optional)", max_length=60, elem_id=f"{name}-type")
        self.button = gr.Button(button, elem_id=f"{name}-button")
        self._connect()

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        drawn = [self.boxes, self.boxed]
        self.way.change(_tool_of, self.way, [self.editor, self.drawing], **quiet)
        self.boxed.select(_clicked, self.boxes, drawn, **quiet)
        self.undo.click(lambda boxes: _shown(boxes and boxes.undone()), self.boxes, drawn, **quiet)

    def shown(self, picture: Picture | None) -> dict[Any, Any]:
        """The values of the components for a picture without marks, or for none."""
        boxes, drawn = _shown(None if picture is None else Boxes(views.enlarged(picture)))
        return {self.editor: views.canvas(picture), self.boxes: boxes, self.boxed: drawn}

    def inputs(self) -> list[gr.components.Component]:
        """The components that `marks` takes the values of."""
        return [self.editor, self.boxes, self.way, self.defect_type]

    @staticmethod
    def marks(
        picture: Picture | None, painting: Any, boxes: Boxes | None, way: str, defect_type: str
    ) -> tuple[np.ndarray | None, str]:
        """The mask of what is painted over a picture or of the boxes drawn on it, or None, and the type."""
        if picture is None:
            return None, defect_type
        height, width = picture.shown.shape[:2]
        if way == BOX:
            return None if boxes is None else boxes.mask((height, width)), defect_type
        return painted_mask(layers_of(painting), (height, width)), defect_type


def _tool_of(way: str) -> tuple[Any, Any]:
    return gr.update(visible=way == PAINT), gr.update(visible=way == BOX)


def _clicked(boxes: Boxes | None, event: gr.SelectData) -> tuple[Boxes | None, Any]:
    return _shown(boxes and boxes.clicked(*event.index))


def _shown(boxes: Boxes | None) -> tuple[Boxes | None, Any]:
    return boxes, None if boxes is None else boxes.drawn()
