"""The tools to mark a defect: an editor, how to read what is painted, the type, and a button."""

from typing import Any

import gradio as gr
import numpy as np

from .marks import PAINTED, WAYS, layers_of, painted_mask
from .uploads import Picture


class MarkingTools:
    """The components, in the place where they are made.

    Args:
        name: begins the identifiers of the components in the page.
        button: what the button says.
    """

    def __init__(self, name: str, button: str) -> None:
        self.editor = gr.ImageEditor(
            label="Paint over the defect",
            sources=(),
            transforms=(),
            layers=False,
            brush=gr.Brush(default_size=14, colors=["#e11d48"], color_mode="fixed"),
            buttons=[],
            interactive=True,
            height=400,
            elem_id=f"{name}-editor",
        )
        with gr.Row():
            self.way = gr.Radio(list(WAYS), value=PAINTED, label="The defect is", elem_id=f"{name}-way")
            self.defect_type = gr.Textbox(label="Type of defect (optional)", max_length=60, elem_id=f"{name}-type")
        self.button = gr.Button(button, elem_id=f"{name}-button")

    def inputs(self) -> list[gr.components.Component]:
        """The components that `marks` takes the values of."""
        return [self.editor, self.way, self.defect_type]

    @staticmethod
    def marks(picture: Picture | None, drawing: Any, way: str, defect_type: str) -> tuple[np.ndarray | None, str]:
        """The mask of what is painted over a picture, or None, and the type."""
        if picture is None:
            return None, defect_type
        height, width = picture.shown.shape[:2]
        return painted_mask(layers_of(drawing), (height, width), way), defect_type
