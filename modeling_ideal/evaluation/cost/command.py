"""`ideal cost`: from the arguments of the command line to a table."""

import argparse
import json
from pathlib import Path

from ...modeling_ideal import IdealModel
from ...training.head.starting_point import model_on_backbone
from .measurement import measure_cost
from .table import cost_table


def cost(arguments: argparse.Namespace) -> str:
    """Measure the models that the arguments name; returns a Markdown table, or JSON."""
    models: dict[str, IdealModel] = {}
    for folder in arguments.model or [arguments.backbone]:
        name = Path(folder).name
        if name in models:
            raise ValueError(f"expected models of different names, got {name!r} twice")
        if arguments.model:
            models[name] = IdealModel.from_pretrained(folder)
        else:
            models[name] = model_on_backbone(folder, arguments.stage, arguments.no_norm)
    measured = measure_cost(models, arguments.setups, arguments.rounds)
    return json.dumps(measured, indent=2) if arguments.json else cost_table(measured)
