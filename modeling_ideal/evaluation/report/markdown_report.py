"""All Markdown tables of one or more `results.json`, each with the command that made it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...writing.files import write_atomically
from ...writing.tables import ABSENT, difference, markdown_table, number, with_spread
from .comparisons import ablation_table, comparison_rows, general_table, hard_table, plug_in_table
from .paper import DATA_SETS, PAPER, published
from .results_files import Target, by_target

METRICS = {
    "image_auroc": "image AUROC",
    "image_ap": "image AP",
    "image_f1_max": "image F1-max",
    "pixel_auroc": "pixel AUROC",
    "pixel_pro": "PRO",
    "pixel_pro_as_released": "PRO as released",
    "pixel_f1_max": "pixel F1-max",
}
SETTINGS = ("general", "hard")

_FINGERPRINT_DIGITS = 12
_ABOUT_PRO = (
    'PRO is exact. "PRO as released" is computed in the way of the paper\'s code (50 thresholds, 4-connected regions, '
    "at most 256 pixels a side), so the paper's PRO stands there."
)


def write_tables(path: str | Path, results: Sequence[dict[str, Any]]) -> None:
    """Write all tables of the contents of one or more results files, in one step."""
    write_atomically(Path(path), tables(results).encode())


def tables(results: Sequence[dict[str, Any]]) -> str:
    """All tables of the contents of one or more results files, as one Markdown document."""
    targets = by_target(results)
    paragraphs = [
        f"# Results on {', '.join(target.name for target in targets)}",
        "In percent: the mean over categories and seeds, ± the standard deviation over seeds of the mean over "
        f'categories. A pair is image / pixel AUROC. "Paper" is what {PAPER} prints, "difference" is ours less the '
        f'paper\'s, "{ABSENT}" is a figure that is undefined, not measured or not printed.',
        "A target is compared with the paper if its folder has the name of one of the paper's data sets and as many "
        "categories as that; whether all its images are there is not checked. The paper trains IDEAL on MVTecAD, "
        "and on VisA where the target is MVTecAD.",
        "\n".join(f"- {target.comparability()}" for target in targets),
        _section("General (the paper's Table 1)", general_table(targets), targets),
        _section("Hard (the paper's Table 2)", hard_table(targets), targets, _about_hard(targets)),
        _section("Ablation, General (the paper's Table 3, left)", ablation_table(targets), targets),
        _section("NVE as a plug-in, General (the paper's Table A1)", plug_in_table(targets), targets),
    ]
    for target in targets:
        for setting in SETTINGS:
            title = f"All metrics: {target.name}, {setting.capitalize()}"
            if paper_table := _paper_table(target, setting):
                title += f" (the paper's Table {paper_table})"
            paragraphs.append(_section(title, metrics_table(target, setting, competitors=True), [target], _ABOUT_PRO))
        for setting in SETTINGS:
            for setup in target.setups(setting):
                title = f"By category: {target.name}, {setting.capitalize()}, {setup}"
                paragraphs.append(_section(title, category_table(target, setting, setup), [target]))
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def metrics_table(target: Target, setting: str, competitors: bool = False) -> str:
    """Tables A3 to A10: all metrics on one target; the paper's figures and the differences in rows of their own.

    With `competitors`, also the methods that the paper alone has measured.
    """
    paper = published(_paper_table(target, setting), target.data_set)
    if not competitors:
        paper = {row: values for row, values in paper.items() if target.figures(*row, setting)}
    lines = []
    for setup, method in comparison_rows([target], [paper], setting):
        ours = target.figures(setup, method, setting)
        if ours:
            cells = [with_spread(ours["mean"].get(name), ours["spread"].get(name)) for name in METRICS]
            lines.append([setup, method, *cells])
        if theirs := {**paper.get((setup, method), {})}:
            if "pixel_pro" in theirs:  # the paper's is that of its code, so it goes where ours is computed alike
                theirs["pixel_pro_as_released"] = theirs.pop("pixel_pro")
            lines.append([setup, f"{method}, paper", *(number(theirs.get(name)) for name in METRICS)])
        if ours and theirs:
            cells = [difference(ours["mean"].get(name), theirs.get(name)) for name in METRICS]
            lines.append([setup, "difference", *cells])
    return markdown_table(["set-up", "method", *METRICS.values()], lines, words=2)


def category_table(target: Target, setting: str, setup: str) -> str:
    """All metrics in each category, means over seeds; the paper prints no such table."""
    lines = []
    for category in target.categories(setting):
        for method in target.methods:
            figures = target.figures(setup, method, setting)
            if figures and category in figures["categories"]:
                values = figures["categories"][category]
                lines.append([category, method, *(number(values.get(name)) for name in METRICS)])
    return markdown_table(["category", "method", *METRICS.values()], lines, words=2)


def _paper_table(target: Target, setting: str) -> str:
    """Where the paper prints the figures of a target; empty where it does not."""
    table_of_metrics = DATA_SETS[target.data_set].table if target.data_set else ""
    number_of_table = "2" if setting == "hard" else table_of_metrics
    return number_of_table if published(number_of_table, target.data_set) else ""


def _about_hard(targets: Sequence[Target]) -> str:
    """What the mean is over, since Hard does not apply to a category with a single type of anomaly."""
    note = (
        "In brackets the change from General, over the same categories. Hard leaves out the anomaly type of the "
        "references, so a category with a single type has no Hard figure"
    )
    partial = [
        f"`{target.name}` has one in {len(target.categories('hard'))} of {len(target.categories())} categories"
        for target in targets
        if len(target.categories("hard")) < len(target.categories())
    ]
    unknown = "; how the paper treats such categories it does not say" if partial else ""
    return f"{note}: {', '.join(partial)}{unknown}." if partial else f"{note}."


def _section(title: str, content: str, targets: Sequence[Target], note: str = "") -> str:
    """A table under its title, with a note and how it was made; empty if the table is."""
    if not content:
        return ""
    made = "\n".join(f"- {target.name}: {_made_by(run)}" for target in targets for run in target.runs)
    return "\n\n".join(filter(None, [f"## {title}", content, note, made]))


def _made_by(run: dict[str, Any]) -> str:
    """The command, and the fingerprints of the model, if its head was used, and of the encoder."""
    command = f"`{run['command']}`" if run["command"] else "called from Python"
    model = f"model {run['model'][:_FINGERPRINT_DIGITS]}" if run["model"] else "no trained head"
    return f"{command}, {model}, encoder {run['encoder'][:_FINGERPRINT_DIGITS]}"
