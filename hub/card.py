"""The model card: adds measured results to a template, and checks the metadata."""

import json
from collections.abc import Collection
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from modeling_ideal.data.setups import SETTINGS
from modeling_ideal.evaluation.cost.table import cost_table
from modeling_ideal.evaluation.report.metric_tables import metrics_table
from modeling_ideal.evaluation.report.target_results import group_by_target
from modeling_ideal.evaluation.results_file import METRICS, read_results

RESULTS, COST = "<!-- results -->", "<!-- cost -->"
NOT_MEASURED = "Not measured for this version."
NAME = "IDEAL"
HUB_TASK = "image-segmentation"  # the closest of the Hub's tasks: a score for every pixel
FIELDS = ("license", "library_name", "pipeline_tag", "tags", "datasets", "base_model")


def render_card(template: str, results: list[Path], cost: Path | None) -> str:
    """Fill in the results and the cost in a model card, and add the results to its metadata as `model-index`."""
    for place in (RESULTS, COST):
        if template.count(place) != 1:
            raise ValueError(f"model card: expected the line {place} once, got {template.count(place)}")
    contents = [read_results(path) for path in results]
    card = ModelCard(template)
    if found := evaluation_results(contents):
        card.data["model_name"], card.data["eval_results"] = NAME, found
    text = str(card).replace(RESULTS, results_tables(contents))
    text = text.replace(COST, cost_table(json.loads(cost.read_text())) if cost else NOT_MEASURED)
    check_card(text)
    return text


def check_figures(results: list[Path], cost: Path | None, models: Collection[str], parameters: int) -> None:
    """Raise ValueError if measured figures belong to another model.

    Args:
        results: `results.json` files of `ideal evaluate`; those of training-free methods alone belong to any model.
        cost: output of `ideal cost --json`, which may measure further models for comparison.
        models: fingerprints of the model, as it was trained and as its weights are rounded.
        parameters: its number of weights.
    """
    for path in results:
        model = read_results(path)["model"]
        if model is not None and model not in models:
            raise ValueError(
                f"{path}: expected the results of this model ({' or '.join(name[:12] for name in sorted(models))}), "
                f"got those of {model[:12]}; run `ideal evaluate` again"
            )
    if cost is not None:
        counts = {name: model["parameters"] for name, model in json.loads(cost.read_text())["models"].items()}
        if parameters not in counts.values():
            raise ValueError(f"{cost}: expected the cost of this model, of {parameters} parameters, got {counts}")


def evaluation_results(contents: list[dict]) -> list[EvalResult]:
    """The mean results of the model in the contents of results files, in the form of the Hub's leaderboards."""
    return [
        EvalResult(
            task_type=HUB_TASK,
            task_name="few-shot anomaly detection",
            dataset_type=content["target"],
            dataset_name=content["target"],
            dataset_config=f"{setup}, {setting}",
            dataset_split="test",
            metric_type=metric,
            metric_name=METRICS[metric],
            metric_value=round(value, 2),
        )
        for content in contents
        for setup, settings in content.get("setups", {}).items()
        for setting, figures in settings.items()
        for metric, value in figures["mean"].items()
        if value is not None
    ]


def results_tables(contents: list[dict]) -> str:
    """Markdown tables of all metrics on every target."""
    parts = [
        f"{target.name}, {setting.capitalize()}:\n\n{metrics_table(target, setting)}"
        for target in (group_by_target(contents) if contents else [])
        for setting in SETTINGS
        if target.setups(setting)
    ]
    return "\n\n".join(parts) or NOT_MEASURED


def check_card(text: str) -> None:
    """Raise ValueError if the metadata of a card is not valid; the Hub checks it again when it is uploaded."""
    # Without `ignore_metadata_errors`, broken YAML and an incomplete `model-index` raise instead of warning.
    data = ModelCard(text, ignore_metadata_errors=False).data
    missing = [name for name in FIELDS if not data.get(name)]
    if missing:
        raise ValueError(f"model card: expected metadata {list(FIELDS)}, got none for {missing}")
    expected = {"library_name": "transformers", "pipeline_tag": HUB_TASK}
    if found := {name: data[name] for name in expected if data[name] != expected[name]}:
        raise ValueError(f"model card: expected {expected}, got {found}")
    if "anomaly-detection" not in data["tags"]:
        raise ValueError(f"model card: expected the tag anomaly-detection, got {data['tags']}")
