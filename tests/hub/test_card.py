"""The model card: valid metadata, and figures that come from files."""

import json

import pytest
from huggingface_hub import ModelCard

from hub.card import check_card, render_card
from hub.files import ROOT

TEMPLATE = (ROOT / "model_card.md").read_text()
FIGURES = {"image_auroc": 91.237, "image_ap": 90.0, "image_f1_max": 80.0, "pixel_auroc": 95.5, "pixel_pro": None}
COST = {
    "machine": {"processor": "x86_64", "threads": 2, "python": "3.11", "torch": "2.13", "rounds": 3},
    "models": {
        "tiny": {
            "device": "cpu",
            "image_size": 448,
            "parameters": 4_900_000,
            "trained_parameters": 1_000_000,
            "setups": {"N1A1": {"references_once": {"flops": 2e10, "frames_per_second": 7.25, "peak_mebibytes": 500}}},
        }
    },
}


@pytest.fixture
def results(tmp_path):
    """A `results.json` of the model on one target, General and Hard."""
    figures = {"mean": FIGURES, "spread": dict.fromkeys(FIGURES), "categories": {"nut": FIGURES}}
    setups = {"N1A1": {"general": figures, "hard": figures}}
    content = {
        **{"target": "parts", "command": "ideal evaluate", "model": "a" * 64, "encoder": "b" * 64},
        **{"seeds": [0], "smoothing": 4.0, "difficulty": {}, "methods": {"ideal": {"setups": setups}}},
        "setups": setups,
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    return path


def test_figures_come_from_the_files(results, tmp_path):
    (tmp_path / "cost.json").write_text(json.dumps(COST))
    text = render_card(TEMPLATE, [results], tmp_path / "cost.json")
    card = ModelCard(text)
    found = {
        (result.dataset_name, result.dataset_config, result.metric_type): result.metric_value
        for result in card.data.eval_results
    }
    measured = {name: value for name, value in FIGURES.items() if value is not None}
    assert found == {
        ("parts", f"N1A1, {setting}", name): round(value, 2)
        for setting in ("general", "hard")
        for name, value in measured.items()
    }
    [index] = card.data.to_dict()["model-index"]
    assert index["name"] == "IDEAL"
    assert "| N1A1 | IDEAL | 91.2 |" in text
    assert "| tiny | N1A1 | encoded once | 4.90 | 1.00 | 2.00 | 7.25 | 500 |" in text
    for field in ("license", "base_model", "datasets", "tags"):
        assert card.data[field] == ModelCard(TEMPLATE).data[field]


def test_without_files_nothing_is_claimed():
    text = render_card(TEMPLATE, [], None)
    assert text.count("Not measured for this version.") == 2
    assert "model-index" not in text


def test_results_of_other_methods_are_no_results_of_the_model(tmp_path):
    content = json.loads((ROOT / "docs/results/mpdd_tiny/results.json").read_text())
    content["methods"] = {"normal_matching": content["methods"]["normal_matching"]}
    content |= {"model": None, "differences": {}}
    del content["setups"]
    (tmp_path / "results.json").write_text(json.dumps(content))
    text = render_card(TEMPLATE, [tmp_path / "results.json"], None)
    assert "model-index" not in text
    assert "normal_matching" in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("license: apache-2.0\n", "", r"got none for \['license'\]"),
        ("pipeline_tag: image-segmentation", "pipeline_tag: anomaly", "got {'pipeline_tag': 'anomaly'}"),
        ("library_name: transformers", "library_name: ideal", "got {'library_name': 'ideal'}"),
        ("- anomaly-detection\n", "", "expected the tag anomaly-detection, got"),
        ("tags:", "model-index:\n- name: x\n  results: wrong\ntags:", "Invalid `model_index` in metadata"),
    ],
)
def test_metadata_that_the_hub_would_not_understand(old, new, message):
    assert old in TEMPLATE
    with pytest.raises(ValueError, match=message):
        check_card(TEMPLATE.replace(old, new, 1))


def test_a_card_without_a_place_for_the_results():
    with pytest.raises(ValueError, match="expected the line <!-- results --> once, got 0"):
        render_card(TEMPLATE.replace("<!-- results -->", ""), [], None)
