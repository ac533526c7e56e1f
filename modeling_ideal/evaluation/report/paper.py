"""The figures that the paper prints (arXiv:2605.23231), as data, and which folder is which of its data sets.

`paper_figures.csv` holds Tables 1, 2, 3 (left) and A1 to A10, one line for each cell or row of a data set, in
percent, in the paper's order and with its digits:

- `setting` is "hard" in Table 2 and "general" elsewhere;
- `setup` names the references that the method gets: N1, A1, N1A1, ...;
- `method` is the paper's name. In the ablations it lists what is switched on, as the paper's check marks do:
  "N1 + A1 + NVE" (Table 3), "InCTRL + NVE" (Table A1), "alpha=0.5" and "Focal + Dice" (Table A2);
- `..._change` is the arrow beside a figure: from General to Hard (Table 2), by adding NVE (Table A1);
- `difficulty` is Table 2's cosine. It belongs to the task: the lines of all methods of a set-up repeat it.

The paper prints no figures by category. Table 3 (right) has other columns and is `COST`. Results on k, r, M and the
loss weights exist as plots only, so they are not here.

The paper agrees with itself in these figures: Table 1 equals the AUROCs of Tables A3 to A8, the full rows of Tables 3
and A2 equal Table 1, and every arrow equals the difference of the figures it stands between. The tests check it.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..results_file import IDEAL

PAPER = "arXiv:2605.23231"
IDEAL_IN_PAPER = "IDEAL"
"""What the paper calls its own method."""

NAMES_IN_PAPER = {IDEAL: IDEAL_IN_PAPER, "foundad": "FoundAD", "nagl": "NAGL", "resad": "ResAD"}
"""What the paper calls our methods, where it has them."""

NOT_RUN = (
    "A row with the paper's figures alone is a system that was not run. WinCLIP, InCTRL and PromptAD need the weights "
    "of CLIP, RegAD, DRA and AHL a training on each data set; NAGL, ResAD and FoundAD can be trained and run here, on "
    "the features of all other methods."
)


@dataclass(frozen=True)
class PaperFigures:
    """What one table reports for one method on one data set.

    Args:
        table: "1", "2", "3" or "A1" to "A10".
        setting: "general" or "hard".
        setup: the references the method gets.
        method: by its name in the paper.
        data_set: by its name in the paper, a key of `DATA_SETS`.
        values: by the names in `results.json` (`image_auroc`, ...), and `image_auroc_change`, `difficulty`.
    """

    table: str
    setting: str
    setup: str
    method: str
    data_set: str
    values: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """A row of Table 3 (right), on VisA; `hours` of training, for WinCLIP of its whole pipeline."""

    parameters_millions: float
    hours: float
    frames_per_second: float
    flops_1e10: float


COST = {
    "WinCLIP": Cost(117.3, 0.2, 1.8, 41.52),
    "InCTRL": Cost(117.5, 0.9, 1.5, 20.47),
    "ResAD": Cost(59.31, 22.8, 7.6, 15.29),
    "NAGL": Cost(24.45, 0.6, 16.8, 13.98),
    "IDEAL": Cost(23.83, 0.5, 21.9, 12.70),
}


@dataclass(frozen=True)
class DataSet:
    """One of the paper's data sets: the names its folder goes by, how many categories it has, its table of metrics."""

    folders: tuple[str, ...]
    categories: int
    table: str


DATA_SETS = {
    "MVTecAD": DataSet(("mvtec", "mvtec_ad", "mvtecad", "mvtec_anomaly_detection"), 15, "A3"),
    "VisA": DataSet(("visa",), 12, "A4"),
    "AITEX": DataSet(("aitex",), 7, "A5"),
    "MPDD": DataSet(("mpdd",), 6, "A6"),
    "BTAD": DataSet(("btad", "btech_dataset_transformed"), 3, "A7"),
    "BraTS": DataSet(("brats", "brain_ad"), 1, "A8"),
    "Liver": DataSet(("liver", "liver_ad"), 1, "A9"),
    "RESC": DataSet(("resc", "resc_ad", "retina_resc_ad"), 1, "A10"),
}


def paper_data_set(folder: str) -> str | None:
    """The paper's name of the data set in a folder, or None where it is not one of the paper's.

    The rule: letter case and "-" for "_" do not matter; a number at the end, as in `mpdd_448`, is the size of the
    pictures and is dropped; what remains is one of `DataSet.folders`.
    """
    name = re.sub(r"_\d+$", "", folder.lower().replace("-", "_"))
    return next((data_set for data_set, known in DATA_SETS.items() if name in known.folders), None)


@cache
def paper_figures() -> tuple[PaperFigures, ...]:
    """All lines of `paper_figures.csv`, in the paper's order."""
    text = files(__package__).joinpath("paper_figures.csv").read_text(encoding="utf-8")
    return tuple(_figures(line) for line in csv.DictReader(text.splitlines()))


def published(table: str, data_set: str | None) -> dict[tuple[str, str], dict[str, float]]:
    """`{(set-up, method): values}` of one table and data set, in the paper's order; empty where there is nothing."""
    return {
        (figures.setup, figures.method): figures.values
        for figures in paper_figures()
        if figures.table == table and figures.data_set == data_set
    }


def _figures(line: dict[str, str]) -> PaperFigures:
    names = {key: line.pop(key) for key in ("table", "setting", "setup", "method", "data_set")}
    return PaperFigures(**names, values={name: float(text) for name, text in line.items() if text})
