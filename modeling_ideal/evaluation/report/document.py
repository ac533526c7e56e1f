"""The Markdown document of one or more `results.json`: all tables, each with the command that made it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...data.setups import SETTINGS
from ...writing.files import write_atomically
from ...writing.tables import ABSENT
from .comparison_tables import ablation_table, general_table, hard_table, plug_in_table
from .difference_table import ABOUT as ABOUT_DIFFERENCES
from .difference_table import difference_table
from .metric_tables import category_table, metrics_table, paper_table
from .paper import NOT_RUN, PAPER
from .target_results import TargetResults, group_by_target

_TITLE = "# Results on "
_FINGERPRINT_DIGITS = 12
_ABOUT_PRO = (
    'PRO is exact. "PRO as released" is computed in the way of the paper\'s code (50 thresholds, 4-connected regions, '
    "at most 256 pixels a side), so the paper's PRO stands there."
)


def write_document(path: str | Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the document of one or more results files in one step."""
    write_atomically(Path(path), results_document(results).encode())


def is_document(path: Path) -> bool:
    """Whether a file is such a document."""
    return path.read_bytes().startswith(_TITLE.encode())


def results_document(results: Sequence[dict[str, Any]]) -> str:
    """All tables of the contents of one or more results files, as one Markdown document."""
    targets = group_by_target(results)
    paragraphs = [
        f"{_TITLE}{', '.join(target.name for target in targets)}",
        "In percent: the mean over categories and seeds, ± the standard deviation over seeds of the mean over "
        f'categories. A pair is image / pixel AUROC. "Paper" is what {PAPER} prints, "difference" is ours less the '
        f'paper\'s, "{ABSENT}" is a figure that is undefined, not measured or not printed.',
        "A target is compared with the paper if its folder has the name of one of the paper's data sets and as many "
        "categories as that; whether all its images are there is not checked. The paper trains IDEAL on MVTecAD, "
        "and on VisA where the target is MVTecAD.",
        "\n".join(f"- {target.comparability()}" for target in targets),
        _section("General (the paper's Table 1)", general_table(targets), targets, _about_general(targets)),
        _section("Hard (the paper's Table 2)", hard_table(targets), targets, _about_hard(targets)),
        _section("Ablation, General (the paper's Table 3, left)", ablation_table(targets), targets),
        _section("NVE as a plug-in, General (the paper's Table A1)", plug_in_table(targets), targets),
    ]
    for target in targets:
        for setting in SETTINGS:
            title = f"Differences: {target.name}, {setting.capitalize()}"
            paragraphs.append(_section(title, difference_table(target, setting), [target], ABOUT_DIFFERENCES))
        for setting in SETTINGS:
            title = f"All metrics: {target.name}, {setting.capitalize()}"
            if number := paper_table(target, setting):
                title += f" (the paper's Table {number})"
            paragraphs.append(_section(title, metrics_table(target, setting, competitors=True), [target], _ABOUT_PRO))
        for setting in SETTINGS:
            for setup in target.setups(setting):
                title = f"By category: {target.name}, {setting.capitalize()}, {setup}"
                paragraphs.append(_section(title, category_table(target, setting, setup), [target]))
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _about_general(targets: Sequence[TargetResults]) -> str:
    """Why some rows have the paper's figures alone."""
    return NOT_RUN if any(target.data_set for target in targets) else ""


def _about_hard(targets: Sequence[TargetResults]) -> str:
    """Which categories the mean is over: Hard does not apply to a category with a single type of anomaly."""
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


def _section(title: str, content: str, targets: Sequence[TargetResults], note: str = "") -> str:
    """A table under its title, with a note and how it was made; empty if the table is empty."""
    if not content:
        return ""
    made = "\n".join(f"- {target.name}: {_made_by(run)}" for target in targets for run in target.runs)
    return "\n\n".join(filter(None, [f"## {title}", content, note, made]))


def _made_by(run: dict[str, Any]) -> str:
    """The command, and the fingerprints of the encoder and, if its head was used, of the model."""
    command = f"`{run['command']}`" if run["command"] else "called from Python"
    model = f"model {run['model'][:_FINGERPRINT_DIGITS]}" if run["model"] else "no trained head"
    return f"{command}, {model}, encoder {run['encoder'][:_FINGERPRINT_DIGITS]}"
