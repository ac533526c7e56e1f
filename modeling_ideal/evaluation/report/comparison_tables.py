"""The paper's comparisons over several targets, Tables 1, 2, 3 (left) and A1, with its figures beside ours.

A cell is image / pixel AUROC in percent. A target that is a whole data set of the paper has two more columns: the
paper's figures and the difference.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ...data.setups import Setup
from ...writing.tables import ABSENT, difference, markdown_table, number, pair, with_spread
from ..results_file import PLUG_INS, Summary
from .difference_table import with_interval
from .paper import IDEAL_IN_PAPER, NAMES_IN_PAPER, published
from .target_results import TargetResults, in_order

AUROCS = ("image_auroc", "pixel_auroc")

ABLATION = {
    "abnormal_matching": "A1",
    "both_matching": "N1 + A1",
    "nve_matching": "N1 + A1 + NVE",
    "ideal_without_nve": "N1 + A1 + IDE",
    IDEAL_IN_PAPER: "N1 + A1 + NVE + IDE",
}
"""The methods in the rows of Table 3 (left), with what the paper has switched on there."""

RowKey = tuple[str, str]
"""Set-up and method, which identify a row."""
PaperTable = Mapping[RowKey, Mapping[str, float]]
"""The rows of a table of the paper for one data set; empty where there are none."""


def general_table(targets: Sequence[TargetResults]) -> str:
    """Table 1: all methods, and those of the paper where a target is one of its data sets."""
    papers = [published("1", target.data_set) for target in targets]
    lines = [
        [*row, *_beside([target.summary(*row, "general") for target in targets], papers, row)]
        for row in comparison_rows(targets, papers, "general")
    ]
    return markdown_table(["set-up", "method", *_heads(targets, papers)], lines, words=2)


def hard_table(targets: Sequence[TargetResults]) -> str:
    """Table 2: without the images of the references' anomaly type, with the change from General and the difficulty."""
    papers = [published("2", target.data_set) for target in targets]
    head, lines = ["set-up", "method"], []
    for target, paper in zip(targets, papers, strict=True):
        head += [target.name, "difficulty"]
        head += [f"{target.data_set}, paper", "difficulty, paper", "difference"] if paper else []
    for row in comparison_rows(targets, papers, "hard"):
        line = [*row]
        for target, paper in zip(targets, papers, strict=True):
            ours, theirs = target.summary(*row, "hard"), paper.get(row, {})
            changes = [_change_from_general(target, row, name) for name in AUROCS]
            line += [_changed(_ours(ours), changes), number(target.difficulty(row[0]) if ours else None, digits=3)]
            if paper:
                printed = [difference(theirs.get(f"{name}_change"), 0) for name in AUROCS]
                line += [_changed(_theirs(theirs), printed), number(theirs.get("difficulty"), digits=3)]
                line += [_differences(ours, theirs)]
        lines.append(line)
    return markdown_table(head, lines, words=2)


def ablation_table(targets: Sequence[TargetResults]) -> str:
    """Table 3 (left): what each part of IDEAL adds, for set-ups with both references and two rows to compare."""
    papers = [published("3", target.data_set) for target in targets]
    lines = []
    for setup in _setups(targets, "general"):
        rows = []
        for method, parts in ABLATION.items():
            measured = [target.summary(setup, method, "general") for target in targets]
            if any(measured):
                marks = ["✓" if part in parts.split(" + ") else "" for part in ("N1", "A1", "NVE", "IDE")]
                rows.append([setup, *marks, method, *_beside(measured, papers, (setup, parts))])
        if len(rows) > 1 and Setup.parse(setup).num_normal and Setup.parse(setup).num_abnormal:
            lines += rows
    head = ["set-up", "normal", "abnormal", "NVE", "IDE", "method", *_heads(targets, papers)]
    return markdown_table(head, lines, words=6)


def plug_in_table(targets: Sequence[TargetResults]) -> str:
    """Table A1: methods on residual deviations, without and with the Normal Variation Eraser; then the paper's."""
    lines = []
    for setup in _setups(targets, "general"):
        for name, erased in PLUG_INS.items():
            plain = NAMES_IN_PAPER.get(name, name)
            measured = [[target.summary(setup, method, "general") for method in (plain, erased)] for target in targets]
            if any(all(both) for both in measured):
                line = [setup, f"{plain}, {erased}"]
                for target, (before, after) in zip(targets, measured, strict=True):
                    gain = _gain(target, setup, erased) or _differences(after, before and before["mean"])
                    line += [pair(_ours(before)), pair(_ours(after)), gain]
                lines.append(line)
    setups = dict.fromkeys(line[0] for line in lines)
    head = ["set-up", "method", *(title for target in targets for title in (target.name, "with NVE", "gain"))]
    return markdown_table(head, lines + _paper_plug_ins(targets, list(setups)), words=2)


def comparison_rows(targets: Sequence[TargetResults], papers: Sequence[PaperTable], setting: str) -> list[RowKey]:
    """For each set-up our methods, then the paper's methods that use its normals, its abnormals or both."""
    rows: list[RowKey] = []
    for setup in _setups(targets, setting):
        for target in targets:
            rows += [(setup, method) for method in target.methods if target.summary(setup, method, setting)]
        ours = {method for name, method in rows if name == setup}
        rows += [row for paper in papers for row in paper if row[0] in _names(setup) and row[1] not in ours]
    return list(dict.fromkeys(rows))


def printed(paper: PaperTable, row: RowKey) -> Mapping[str, float]:
    """The paper's values for a row, empty without; what takes one kind of reference is printed under that: N1."""
    setup, method = row
    both = setup.startswith("N") and "A" in setup  # a set-up of ours
    names = (setup, *_names(setup)) if both else (setup,)
    return next((paper[name, method] for name in names if (name, method) in paper), {})


def _setups(targets: Sequence[TargetResults], setting: str) -> list[str]:
    return in_order({setup for target in targets for setup in target.setups(setting)})


def _names(setup: str) -> tuple[str, str, str]:
    """What the paper calls the normals, the abnormals and both of a set-up: N1, A1 and N1A1."""
    parsed = Setup.parse(setup)
    return f"N{parsed.num_normal}", f"A{parsed.num_abnormal}", setup


def _heads(targets: Sequence[TargetResults], papers: Sequence[PaperTable]) -> list[str]:
    head = []
    for target, paper in zip(targets, papers, strict=True):
        head += [target.name, *([f"{target.data_set}, paper", "difference"] if paper else [])]
    return head


def _beside(measured: Sequence[Summary | None], papers: Sequence[PaperTable], row: RowKey) -> list[str]:
    """Ours for each target and, where the paper has figures of the data set, the paper's and the difference."""
    cells = []
    for ours, paper in zip(measured, papers, strict=True):
        cells.append(pair(_ours(ours)))
        if paper:
            theirs = printed(paper, row)
            cells += [pair(_theirs(theirs)), _differences(ours, theirs)]
    return cells


def _paper_plug_ins(targets: Sequence[TargetResults], setups: Sequence[str]) -> list[list[str]]:
    """The paper's rows of Table A1 for these set-ups; what a method reaches without NVE is in its Table 1."""
    names = {name for setup in setups for name in _names(setup)}
    with_eraser = [published("A1", target.data_set) for target in targets]
    without = [published("1", target.data_set) for target in targets]
    lines = []
    for setup, method in dict.fromkeys(row for paper in with_eraser for row in paper if row[0] in names):
        plain = method.removesuffix(" + NVE")
        line = [setup, f"{plain}, paper"]
        for before, after in zip(without, with_eraser, strict=True):
            values = after.get((setup, method), {})
            changes = [difference(values.get(f"{name}_change"), 0) for name in AUROCS]
            line += [pair(_theirs(before[setup, plain] if values else {})), pair(_theirs(values)), pair(changes)]
        lines.append(line)
    return lines


def _gain(target: TargetResults, setup: str, erased: str) -> str:
    """What the eraser adds, with its interval; empty where both were not measured in one run."""
    for run in target.runs:
        if gain := run.get("gains", {}).get(setup, {}).get("general", {}).get(erased):
            return pair([with_interval(gain.get(name)) for name in AUROCS])
    return ""


def _ours(summary: Summary | None) -> list[str]:
    summary = summary or {"mean": {}, "spread": {}}
    return [with_spread(summary["mean"].get(name), summary["spread"].get(name)) for name in AUROCS]


def _theirs(values: Mapping[str, float]) -> list[str]:
    return [number(values.get(name)) for name in AUROCS]


def _differences(ours: Summary | None, theirs: Mapping[str, float] | None) -> str:
    if not ours or not theirs:
        return ABSENT
    return pair([difference(ours["mean"].get(name), theirs.get(name)) for name in AUROCS])


def _changed(cells: Sequence[str], changes: Sequence[str]) -> str:
    """Cells, each with its change in brackets where there is one."""
    both = zip(cells, changes, strict=True)
    return pair([cell if change == ABSENT else f"{cell} ({change})" for cell, change in both])


def _change_from_general(target: TargetResults, row: RowKey, name: str) -> str:
    """Hard less General, over the categories where Hard applies: a change of the task, not of the categories."""
    hard, general = target.summary(*row, "hard"), target.summary(*row, "general")
    if not hard or not general:
        return ABSENT
    means = [
        [summary["categories"].get(category, {}).get(name) for category in hard["categories"]]
        for summary in (hard, general)
    ]
    if any(value is None for values in means for value in values):
        return ABSENT
    return difference(*(float(np.mean(values)) for values in means))
