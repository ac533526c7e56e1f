"""The paper's figures: complete, spot-checked against the print, and in agreement with one another."""

import pytest

from modeling_ideal.evaluation.report.paper import (
    COST,
    DATA_SETS,
    IDEAL_IN_PAPER,
    paper_data_set,
    paper_figures,
    published,
)

AUROCS = ("image_auroc", "pixel_auroc")
MAIN = ("MVTecAD", "VisA", "AITEX", "MPDD", "BTAD", "BraTS")  # of Table 1; Liver and RESC are in the appendix alone


def test_every_table_is_complete():
    rows = {}
    for figures in paper_figures():
        rows[figures.table] = rows.get(figures.table, 0) + 1
    # 36 rows a comparison: six normal-only methods in four set-ups, two abnormal-only in two, two with both in four
    comparisons = {known.table: 36 for known in DATA_SETS.values()}
    assert rows == {"1": 36 * 6, "2": 8 * 2, "3": 5 * 3, "A1": 12 * 2, "A2": (4 + 4) * 2, **comparisons}
    keys = [
        (figures.table, figures.setting, figures.setup, figures.method, figures.data_set)
        for figures in paper_figures()
    ]
    assert len(set(keys)) == len(keys)
    assert {figures.data_set for figures in paper_figures()} == set(DATA_SETS)
    assert {figures.table for figures in paper_figures() if figures.setting == "hard"} == {"2"}


def test_every_comparison_has_all_six_metrics():
    names = {"image_auroc", "image_ap", "image_f1_max", "pixel_auroc", "pixel_pro", "pixel_f1_max"}
    for data_set, known in DATA_SETS.items():
        for values in published(known.table, data_set).values():
            assert set(values) == names
            assert all(0 < value < 100 for value in values.values())


@pytest.mark.parametrize(
    ("table", "data_set", "setup", "method", "name", "value"),
    [
        ("1", "MPDD", "N1A1", "IDEAL", "image_auroc", 78.5),
        ("1", "BraTS", "A4", "AHL", "pixel_auroc", 90.3),
        ("2", "MPDD", "N1A1", "NAGL", "image_auroc_change", -13.4),
        ("2", "MVTecAD", "N4A1", "IDEAL", "difficulty", 0.839),
        ("3", "VisA", "N1A1", "N1 + A1 + NVE", "image_auroc", 82.7),
        ("A1", "MVTecAD", "N1", "ResAD + NVE", "image_auroc_change", 2.8),
        ("A2", "VisA", "N1A1", "alpha=0.2", "pixel_auroc", 97.1),
        ("A2", "MVTecAD", "N1A1", "Focal + Dice + Dual", "image_auroc", 94.8),
        ("A6", "MPDD", "N4", "WinCLIP", "image_f1_max", 83.0),  # printed without a decimal
        ("A10", "RESC", "N8A4", "IDEAL", "pixel_pro", 79.9),
    ],
)
def test_spot_checks(table, data_set, setup, method, name, value):
    assert published(table, data_set)[setup, method][name] == value


def test_the_cost_of_ideal():
    assert (COST["IDEAL"].parameters_millions, COST["IDEAL"].frames_per_second) == (23.83, 21.9)


@pytest.mark.parametrize("data_set", MAIN)
def test_table_1_equals_the_tables_of_all_metrics(data_set):
    main, full = published("1", data_set), published(DATA_SETS[data_set].table, data_set)
    assert set(main) == set(full)
    assert [[main[key][name] for name in AUROCS] for key in main] == [
        [full[key][name] for name in AUROCS] for key in main
    ]


def test_the_full_rows_of_the_ablations_equal_table_1():
    full = [("3", "N1 + A1 + NVE + IDE"), ("A2", "alpha=0.8"), ("A2", "Focal + Dice + BCE + Dual")]
    rows = [figures for figures in paper_figures() if (figures.table, figures.method) in full]
    assert len(rows) == 3 + 2 + 2
    for figures in rows:
        assert figures.values == published("1", figures.data_set)["N1A1", IDEAL_IN_PAPER]


@pytest.mark.parametrize("table", ["2", "A1"])
def test_every_arrow_is_the_difference_from_table_1(table):
    rows = [figures for figures in paper_figures() if figures.table == table]
    for figures in rows:
        before = published("1", figures.data_set)[figures.setup, figures.method.removesuffix(" + NVE")]
        for name in AUROCS:
            assert figures.values[name] - before[name] == pytest.approx(figures.values[f"{name}_change"])


@pytest.mark.parametrize(
    ("folder", "data_set"),
    [
        ("mpdd", "MPDD"),
        ("mpdd_448", "MPDD"),
        ("MVTec-AD", "MVTecAD"),
        ("mvtec_ad_448", "MVTecAD"),
        ("VisA", "VisA"),
        ("BTech_Dataset_transformed", "BTAD"),
        ("Liver_AD", "Liver"),
        ("mvtec_loco", None),
        ("my_parts", None),
        ("448", None),
    ],
)
def test_folders_and_data_sets(folder, data_set):
    assert paper_data_set(folder) == data_set
