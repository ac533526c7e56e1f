"""`results.json`: the names in it, and reading it back. Quick to import: needs neither torch nor datasets."""

import json
from pathlib import Path
from typing import Any

IDEAL = "ideal"
"""The method that is the model itself."""

PLUG_INS = {
    "residual_matching": "nve_matching",
    "residual_length": "nve_length",
    "nagl": "nagl_nve",
    "resad": "resad_nve",
}
"""Methods on residual deviations, each with its twin on denoised ones."""

METRICS = {
    "image_auroc": "image AUROC",
    "image_ap": "image AP",
    "image_f1_max": "image F1-max",
    "pixel_auroc": "pixel AUROC",
    "pixel_pro": "PRO",
    "pixel_pro_as_released": "PRO as released",
    "pixel_f1_max": "pixel F1-max",
}
"""The metrics by their names in the file, and as headings of a table."""

Metrics = dict[str, float | None]
"""`{name of a metric: percent}`, None where it is undefined."""

Summary = dict[str, Any]
"""`{"mean": metrics, "spread": metrics, "categories": {category: metrics}}` of a method with a set-up in a setting."""

_FIELDS = ("target", "command", "model", "encoder", "seeds", "smoothing", "difficulty", "methods")


def read_results(path: str | Path) -> dict[str, Any]:
    """The content of a `results.json`; ValueError where the file is not one."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected the results.json of an evaluation, got no JSON: {error}") from None
    problem = _problem(content)
    if problem:
        raise ValueError(f"{path}: expected the results.json of an evaluation, got {problem}")
    return content


def _problem(content: Any) -> str:
    """Why a JSON document is not the result of an evaluation; empty if it is."""
    if not isinstance(content, dict):
        return f"a JSON {type(content).__name__}"
    missing = [name for name in _FIELDS if name not in content]
    if missing:
        return f"an object without {', '.join(missing)}"
    try:
        values = [
            summary[name]
            for method in content["methods"].values()
            for settings in method["setups"].values()
            for summary in settings.values()
            for name in ("mean", "spread", "categories")
        ]
    except (AttributeError, KeyError, TypeError) as error:
        return f"methods of another form ({type(error).__name__}: {error})"
    return "" if all(isinstance(value, dict) for value in values) else "methods whose metrics are not objects"
