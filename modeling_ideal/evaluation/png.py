"""Figures to PNG files."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.atomic import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_png(path: Path, figure: "Figure", texts: dict[str, str]) -> None:
    """Write a figure in one step, with `texts` and neither date nor version in the file: the same twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None, **texts})
    write_atomically(path, buffer.getvalue())
