"""Tables of made-up results: every cell as it should be, and bad input refused."""

import ast
import json
import subprocess
import sys

import pytest

from modeling_ideal.cli import main
from modeling_ideal.evaluation.report.comparison_tables import ablation_table, general_table, hard_table, plug_in_table
from modeling_ideal.evaluation.report.document import results_document
from modeling_ideal.evaluation.report.metric_tables import category_table, metrics_table
from modeling_ideal.evaluation.report.target_results import group_by_target

MPDD = ("bracket_black", "bracket_brown", "bracket_white", "connector", "metal_plate", "tubes")
TWO_TYPES = tuple(name for name in MPDD if name not in ("connector", "tubes"))
VISA = tuple(f"category_{number}" for number in range(12))


def summary(image, pixel, categories, spread=0.2, **others):
    """Metrics that are the same in all categories."""
    mean = {"image_auroc": image, "pixel_auroc": pixel, **others}
    return {
        "mean": mean,
        "spread": dict.fromkeys(mean, spread),
        "categories": {category: dict(mean) for category in categories},
    }


def results(target, methods, **changes):
    """The content of a results.json; `methods` is `{method: {setup: {setting: summary}}}`."""
    return {
        "target": target,
        "command": f"ideal evaluate --model trained --target {target}",
        "model": "0123456789abcdef",
        "encoder": "fedcba9876543210",
        "seeds": [0, 1],
        "smoothing": 4.0,
        "difficulty": {"N1A1": dict.fromkeys(TWO_TYPES, 0.5)},
        "methods": {method: {"setups": setups} for method, setups in methods.items()},
        **changes,
    }


@pytest.fixture
def mpdd():
    return results(
        "mpdd_448",
        {
            "ideal": {
                "N1A1": {
                    "general": summary(78.04, 98.0, MPDD, image_ap=80.0, pixel_pro=93.0, pixel_pro_as_released=94.0),
                    "hard": summary(75.0, 97.0, TWO_TYPES),
                }
            },
            "normal_matching": {"N1A1": {"general": summary(61.0, None, MPDD, spread=None)}},
        },
    )


def only(*contents):
    [target] = group_by_target(contents)
    return target


def test_general_is_shaped_like_table_1(mpdd):
    assert general_table([only(mpdd)]).splitlines() == [
        "| set-up | method | mpdd_448 | MPDD, paper | difference |",
        "| --- | --- | ---: | ---: | ---: |",
        "| N1A1 | IDEAL | 78.0 ± 0.2 / 98.0 ± 0.2 | 78.5 / 97.9 | -0.5 / +0.1 |",
        "| N1A1 | normal_matching | 61.0 / - | - | - |",
        "| N1 | RegAD | - | 69.7 / 92.5 | - |",
        "| N1 | PromptAD | - | 75.8 / 95.1 | - |",
        "| N1 | WinCLIP | - | 70.2 / 94.3 | - |",
        "| N1 | InCTRL | - | 74.8 / 93.1 | - |",
        "| N1 | ResAD | - | 67.7 / 92.7 | - |",
        "| N1 | FoundAD | - | 70.6 / 95.4 | - |",
        "| A1 | DRA | - | 73.4 / 93.9 | - |",
        "| A1 | AHL | - | 73.3 / 94.3 | - |",
        "| N1A1 | NAGL | - | 77.1 / 96.5 | - |",
    ]


def test_rivals_that_were_run_stand_beside_the_figures_of_the_paper(mpdd):
    for name, image in (("nagl", 77.0), ("resad", 70.0), ("nagl_nve", 78.0)):
        mpdd["methods"][name] = {"setups": {"N1A1": {"general": summary(image, 96.0, MPDD, spread=None)}}}
    lines = general_table([only(mpdd)]).splitlines()
    assert "| N1A1 | NAGL | 77.0 / 96.0 | 77.1 / 96.5 | -0.1 / -0.5 |" in lines
    assert "| N1A1 | ResAD | 70.0 / 96.0 | 67.7 / 92.7 | +2.3 / +3.3 |" in lines  # printed for N1
    assert "| N1 | FoundAD | - | 70.6 / 95.4 | - |" in lines
    assert sum("NAGL" in line or "ResAD" in line for line in lines) == 2
    assert "| N1A1 | ResAD, paper | 67.7 |" in metrics_table(only(mpdd), "general")
    assert "| N1A1 | NAGL, nagl_nve | 77.0 / 96.0 | 78.0 / 96.0 | +1.0 / +0.0 |" in plug_in_table([only(mpdd)])
    assert "WinCLIP, InCTRL and PromptAD need the weights of CLIP" in results_document([mpdd])


def test_hard_is_shaped_like_table_2(mpdd):
    # General is compared over the categories that Hard has: the others would change the task as well.
    for category in ("connector", "tubes"):
        mpdd["methods"]["ideal"]["setups"]["N1A1"]["general"]["categories"][category]["image_auroc"] = 10.0
    assert hard_table([only(mpdd)]).splitlines() == [
        "| set-up | method | mpdd_448 | difficulty | MPDD, paper | difficulty, paper | difference |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        "| N1A1 | IDEAL | 75.0 ± 0.2 (-3.0) / 97.0 ± 0.2 (-1.0) | 0.500 "
        "| 74.5 (-4.0) / 97.2 (-0.7) | 0.543 | +0.5 / -0.2 |",
        "| N1A1 | NAGL | - | - | 63.7 (-13.4) / 91.8 (-4.7) | 0.543 | - |",
    ]
    assert "`mpdd_448` has one in 4 of 6 categories; how the paper treats such categories" in results_document([mpdd])


def test_a_category_without_masks_leaves_the_pixel_change_undefined(mpdd):
    mpdd["methods"]["ideal"]["setups"]["N1A1"]["general"]["categories"]["metal_plate"]["pixel_auroc"] = None
    assert "| 75.0 ± 0.2 (-3.0) / 97.0 ± 0.2 | 0.500 |" in hard_table([only(mpdd)])


def test_hard_without_general_has_no_change():
    alone = results("parts", {"ideal": {"N1A1": {"hard": summary(75.0, None, ["nut"])}}}, difficulty={})
    assert hard_table([only(alone)]).splitlines()[-1] == "| N1A1 | IDEAL | 75.0 ± 0.2 / - | - |"
    assert general_table([only(alone)]) == ""


def test_the_ablation_is_shaped_like_table_3():
    rows = {
        "ideal": 90.0,
        "abnormal_matching": 60.0,
        "both_matching": 70.0,
        "nve_matching": 80.0,
        "ideal_without_nve": 85.0,
        "coreset": 50.0,
    }
    content = results(
        "visa",
        {
            method: {setup: {"general": summary(value, 95.0, VISA, spread=None)} for setup in ("N1A1", "N2A1", "N1A0")}
            for method, value in rows.items()
        },
    )
    lines = ablation_table([only(content)]).splitlines()
    assert lines[:7] == [
        "| set-up | normal | abnormal | NVE | IDE | method | visa | VisA, paper | difference |",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: |",
        "| N1A1 |  | ✓ |  |  | abnormal_matching | 60.0 / 95.0 | 61.3 / 85.6 | -1.3 / +9.4 |",
        "| N1A1 | ✓ | ✓ |  |  | both_matching | 70.0 / 95.0 | 77.8 / 92.7 | -7.8 / +2.3 |",
        "| N1A1 | ✓ | ✓ | ✓ |  | nve_matching | 80.0 / 95.0 | 82.7 / 95.3 | -2.7 / -0.3 |",
        "| N1A1 | ✓ | ✓ |  | ✓ | ideal_without_nve | 85.0 / 95.0 | 87.3 / 96.5 | -2.3 / -1.5 |",
        "| N1A1 | ✓ | ✓ | ✓ | ✓ | IDEAL | 90.0 / 95.0 | 90.8 / 97.8 | -0.8 / -2.8 |",
    ]
    assert lines[7] == "| N2A1 |  | ✓ |  |  | abnormal_matching | 60.0 / 95.0 | - | - |"  # the paper has N1A1 alone
    assert len(lines) == 2 + 5 + 5  # nothing for N1A0


def test_one_row_is_no_ablation(mpdd):
    assert ablation_table([only(mpdd)]) == ""


def test_the_plug_in_has_off_on_and_the_gain():
    rows = {"residual_length": 70.0, "nve_length": 72.5, "residual_matching": 60.0}
    methods = {
        method: {"N4A1": {"general": summary(value, 90.0, VISA, spread=None)}} for method, value in rows.items()
    }
    parts = results("parts", {"nve_length": {"N4A1": {"general": summary(50.0, 50.0, ["nut"], spread=None)}}})
    assert plug_in_table(group_by_target([results("visa", methods), parts])).splitlines() == [
        "| set-up | method | visa | with NVE | gain | parts | with NVE | gain |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| N4A1 | residual_length, nve_length | 70.0 / 90.0 | 72.5 / 90.0 | +2.5 / +0.0 | - | 50.0 / 50.0 | - |",
        "| N4 | InCTRL, paper | 89.5 / 94.2 | 90.2 / 94.5 | +0.7 / +0.3 | - | - | - |",
        "| N4 | ResAD, paper | 83.1 / 90.1 | 84.7 / 91.0 | +1.6 / +0.9 | - | - | - |",
        "| N4 | RegAD, paper | 89.5 / 93.3 | 89.9 / 94.6 | +0.4 / +1.3 | - | - | - |",
        "| N4A1 | NAGL, paper | 91.2 / 97.7 | 91.8 / 97.8 | +0.6 / +0.1 | - | - | - |",
    ]


def test_the_gain_has_its_interval_where_both_were_measured_in_one_run():
    rows = {"resad": 60.0, "resad_nve": 61.0, "nagl": 70.0, "nagl_nve": 72.0}
    methods = {name: {"N1A1": {"general": summary(value, 90.0, ["nut"], spread=None)}} for name, value in rows.items()}
    gains = {"N1A1": {"general": {"resad_nve": {"image_auroc": [1.0, -0.5, 2.5]}}}}
    lines = plug_in_table(group_by_target([results("parts", methods, gains=gains)])).splitlines()
    assert "| N1A1 | ResAD, resad_nve | 60.0 / 90.0 | 61.0 / 90.0 | +1.0 [-0.5, +2.5] / - |" in lines
    assert "| N1A1 | NAGL, nagl_nve | 70.0 / 90.0 | 72.0 / 90.0 | +2.0 / +0.0 |" in lines


def test_all_metrics_with_both_forms_of_pro(mpdd):
    lines = metrics_table(only(mpdd), "general").splitlines()
    assert lines == [
        "| set-up | method | image AUROC | image AP | image F1-max "
        "| pixel AUROC | PRO | PRO as released | pixel F1-max |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| N1A1 | IDEAL | 78.0 ± 0.2 | 80.0 ± 0.2 | - | 98.0 ± 0.2 | 93.0 ± 0.2 | 94.0 ± 0.2 | - |",
        "| N1A1 | IDEAL, paper | 78.5 | 80.5 | 86.8 | 97.9 | - | 94.1 | 40.6 |",
        "| N1A1 | difference | -0.5 | -0.5 | - | +0.1 | - | -0.1 | - |",
        "| N1A1 | normal_matching | 61.0 | - | - | - | - | - | - |",
    ]
    more = metrics_table(only(mpdd), "general", competitors=True).splitlines()
    assert more[: len(lines)] == lines
    assert more[-1] == "| N1A1 | NAGL, paper | 77.1 | 79.3 | 84.6 | 96.5 | - | 92.8 | 39.0 |"


def test_each_category(mpdd):
    lines = category_table(only(mpdd), "general", "N1A1").splitlines()
    assert len(lines) == 2 + 6 * 2
    assert lines[2:4] == [
        "| bracket_black | IDEAL | 78.0 | 80.0 | - | 98.0 | 93.0 | 94.0 | - |",
        "| bracket_black | normal_matching | 61.0 | - | - | - | - | - | - |",
    ]
    assert category_table(only(mpdd), "hard", "N1A1").count("IDEAL") == 4


def test_a_part_of_a_data_set_is_not_compared():
    twelve = [f"category_{number}" for number in range(12)]
    part = results("mvtec_ad_448", {"ideal": {"N1A1": {"general": summary(95.0, 96.0, twelve)}}})
    text = results_document([part])
    assert (
        "- `mvtec_ad_448` has 12 of the 15 categories of the paper's MVTecAD: **not comparable with the paper**"
        in text
    )
    assert "NAGL" not in text
    assert "| difference" not in text
    assert general_table([only(part)]).splitlines()[-1] == "| N1A1 | IDEAL | 95.0 ± 0.2 / 96.0 ± 0.2 |"


def test_a_folder_of_ones_own_is_not_compared():
    text = results_document([results("parts", {"ideal": {"N1A1": {"general": summary(95.0, 96.0, ["nut"])}}})])
    assert "- `parts` is not one of the paper's data sets." in text
    assert "paper |" not in text


def test_every_table_says_how_it_was_made(mpdd):
    methods = {"coreset": {"N2A0": {"general": summary(95.0, 96.0, ["nut"])}}}
    text = results_document([mpdd, results("parts", methods, command="", model=None)])
    sections = text.split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections] == [
        "General (the paper's Table 1)",
        "Hard (the paper's Table 2)",
        "All metrics: mpdd_448, General (the paper's Table A6)",
        "All metrics: mpdd_448, Hard (the paper's Table 2)",
        "By category: mpdd_448, General, N1A1",
        "By category: mpdd_448, Hard, N1A1",
        "All metrics: parts, General",
        "By category: parts, General, N2A0",
    ]
    ours = "- mpdd_448: `ideal evaluate --model trained --target mpdd_448`, model 0123456789ab, encoder fedcba987654"
    theirs = "- parts: called from Python, no trained head, encoder fedcba987654"
    for section in sections:
        lines = section.strip().splitlines()
        named = [line for line in (ours, theirs) if line in lines]
        assert named == ([theirs] if "parts," in lines[0] else [ours] if "mpdd_448," in lines[0] else [ours, theirs])


def test_results_of_one_target_are_put_together(mpdd):
    more = results("mpdd_448", {"coreset": {"N2A1": {"general": summary(70.0, 90.0, MPDD)}}}, model="another")
    target = only(mpdd, more, mpdd)
    assert list(target.methods) == ["IDEAL", "normal_matching", "coreset"]
    assert target.setups("general") == ["N1A1", "N2A1"]
    assert target.summary("N2A1", "IDEAL", "general") is None


def test_setups_are_in_the_order_of_their_size():
    setups = {name: {"general": summary(70.0, 90.0, ["nut"])} for name in ("N16A1", "N2A1", "N2A0")}
    assert only(results("parts", {"coreset": setups})).setups("general") == ["N2A0", "N2A1", "N16A1"]


def test_what_cannot_be_put_together_is_refused(mpdd):
    with pytest.raises(ValueError, match=r"expected at least one results\.json, got none"):
        results_document([])
    with pytest.raises(
        ValueError, match=r"mpdd_448: expected one value of 'encoder' .* got 'fedcba9876543210' and 'x'"
    ):
        results_document([mpdd, {**mpdd, "encoder": "x"}])
    other = results("mpdd_448", {"ideal": {"N1A1": {"general": summary(1.0, 2.0, MPDD)}}})
    with pytest.raises(ValueError, match="expected one result of 'ideal' for N1A1, general, got two that differ"):
        results_document([mpdd, other])


def test_the_command_makes_tables(mpdd, tmp_path, capsys):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(mpdd))
    assert main(["tables", str(path)]) == 0
    assert capsys.readouterr().out == results_document([mpdd])
    assert main(["tables", str(path), "--out", str(tmp_path / "tables.md")]) == 0
    assert (tmp_path / "tables.md").read_text() == results_document([mpdd])
    path.write_text("{}")
    assert main(["tables", str(path)]) == 3
    assert "expected the results.json of an evaluation, got an object without target" in capsys.readouterr().err


def test_the_command_needs_neither_torch_nor_datasets(mpdd, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(mpdd))
    code = "import sys; sys.argv = ['ideal']; from modeling_ideal.cli import main; "
    code += f"main(['tables', {str(path)!r}, '--out', {str(tmp_path / 'tables.md')!r}]); print(sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "datasets", "transformers", "matplotlib"} & set(ast.literal_eval(result.stdout))
    assert (tmp_path / "tables.md").exists()
