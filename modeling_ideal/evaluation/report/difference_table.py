"""The table of how far IDEAL is ahead of each other method."""

from collections.abc import Sequence

from ...writing.tables import ABSENT, markdown_table
from .paper import NAMES_IN_PAPER
from .target_results import TargetResults, in_order

ABOUT = (
    "Positive where IDEAL is ahead. In brackets a 95 % interval: a paired bootstrap over reference sets (categories "
    "and seeds), for the image AUROC over the test images too. A difference whose interval includes 0 may be chance."
)


def difference_table(target: TargetResults, setting: str) -> str:
    """Image and pixel AUROC of IDEAL less those of each method, a column for each set-up; empty if not measured."""
    found = [run["differences"] for run in target.runs if run.get("differences")]
    cells: dict[str, dict[str, str]] = {}
    for differences in found:
        for setup, settings in differences.items():
            for method, metrics in settings.get(setting, {}).items():
                parts = (with_interval(metrics.get(name)) for name in ("image_auroc", "pixel_auroc"))
                cells.setdefault(method, {})[setup] = " / ".join(parts)
    setups = in_order({setup for row in cells.values() for setup in row})
    rows = [
        [NAMES_IN_PAPER.get(method, method), *(row.get(setup, ABSENT) for setup in setups)]
        for method, row in cells.items()
    ]
    return markdown_table(["IDEAL less", *setups], rows, words=1)


def with_interval(values: Sequence[float] | None) -> str:
    """A difference with the ends of its interval."""
    return ABSENT if values is None else f"{values[0]:+.1f} [{values[1]:+.1f}, {values[2]:+.1f}]"
