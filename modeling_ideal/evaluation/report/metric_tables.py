"""All metrics on one target: means as in the paper's Tables A3 to A10, and by category."""

from ...writing.tables import difference, markdown_table, number, with_spread
from ..results_file import METRICS
from .comparison_tables import comparison_rows, printed
from .paper import DATA_SETS, published
from .target_results import TargetResults


def metrics_table(target: TargetResults, setting: str, competitors: bool = False) -> str:
    """Tables A3 to A10: all metrics on one target, with the paper's figures and the differences in rows of their own.

    With `competitors`, also the methods that only the paper has measured.
    """
    paper = published(paper_table(target, setting), target.data_set)
    if not competitors:
        paper = {row: values for row, values in paper.items() if row[1] in target.methods}
    lines = []
    for setup, method in comparison_rows([target], [paper], setting):
        ours = target.summary(setup, method, setting)
        if ours:
            cells = [with_spread(ours["mean"].get(name), ours["spread"].get(name)) for name in METRICS]
            lines.append([setup, method, *cells])
        if theirs := {**printed(paper, (setup, method))}:
            if "pixel_pro" in theirs:  # computed by the paper's code, so it goes beside ours of the same kind
                theirs["pixel_pro_as_released"] = theirs.pop("pixel_pro")
            lines.append([setup, f"{method}, paper", *(number(theirs.get(name)) for name in METRICS)])
        if ours and theirs:
            cells = [difference(ours["mean"].get(name), theirs.get(name)) for name in METRICS]
            lines.append([setup, "difference", *cells])
    return markdown_table(["set-up", "method", *METRICS.values()], lines, words=2)


def category_table(target: TargetResults, setting: str, setup: str) -> str:
    """All metrics in each category, means over seeds; the paper prints no such table."""
    lines = []
    for category in target.categories(setting):
        for method in target.methods:
            summary = target.summary(setup, method, setting)
            if summary and category in summary["categories"]:
                values = summary["categories"][category]
                lines.append([category, method, *(number(values.get(name)) for name in METRICS)])
    return markdown_table(["category", "method", *METRICS.values()], lines, words=2)


def paper_table(target: TargetResults, setting: str) -> str:
    """The number of the paper's table with the metrics of a target; empty where there is none."""
    table_of_metrics = DATA_SETS[target.data_set].table if target.data_set else ""
    number_of_table = "2" if setting == "hard" else table_of_metrics
    return number_of_table if published(number_of_table, target.data_set) else ""
