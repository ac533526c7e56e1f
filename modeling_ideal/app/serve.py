"""The implementation of `ideal app`."""

import argparse
from collections.abc import Callable
from threading import Event
from typing import Any

import gradio as gr

from ..detection.commands import load_pipeline
from .detector import Detector
from .page import Page
from .style import STYLE
from .uploads import MOST_REFERENCE_BYTES

MOST_SESSIONS = 100  # whose pictures are kept; the one that was idle longest gives way
SYSTEM_FONTS, SYSTEM_FONTS_MONO = ("system-ui", "sans-serif"), ("ui-monospace", "monospace")  # none to be fetched


def launch(detector: Detector, host: str, port: int | None) -> tuple[Page, str]:
    """Start to serve the page, and return it with its address.

    Args:
        detector: the model that all sessions share.
        host: the address to listen on.
        port: its port; None for one that is free.
    """
    page = Page(detector)
    _, address, _ = page.blocks.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        run_history=False,  # which would keep pictures in the browser
        footer_links=[],
        state_session_capacity=MOST_SESSIONS,
        max_file_size=MOST_REFERENCE_BYTES,
        theme=gr.themes.Default(primary_hue="blue", font=SYSTEM_FONTS, font_mono=SYSTEM_FONTS_MONO),
        css=STYLE,
    )
    return page, address


def serve(arguments: argparse.Namespace, say: Callable[[str], Any]) -> None:
    """Serve the page until Ctrl-C; `say` prints a line."""
    page, address = launch(Detector(load_pipeline(arguments)), arguments.host, arguments.port)
    say(f"Open {address} in a browser; Ctrl-C stops it.")
    try:
        Event().wait()
    finally:
        page.blocks.close(verbose=False)
