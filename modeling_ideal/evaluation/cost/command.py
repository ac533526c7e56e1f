"""`ideal cost`: from the arguments of the command line to a table."""

import argparse
import json

from ... import model_name
from ...devices import choose_device
from ...modeling_ideal import IdealModel
from ...training.head.starting_point import model_on_backbone
from .measurement import measure_cost
from .table import cost_table


def cost(arguments: argparse.Namespace) -> str:
    """Measure the models that the arguments name; returns a Markdown table, or JSON."""
    device = choose_device(arguments.device)
    models: dict[str, IdealModel] = {}
    for folder in arguments.model or [arguments.backbone]:
        name = model_name(folder)
        if name in models:
            raise ValueError(f"expected models of different names, got {name!r} twice")
        if arguments.model:
            models[name] = IdealModel.from_pretrained(folder).to(device)
        else:
            models[name] = model_on_backbone(folder, arguments.stage, arguments.no_norm).to(device)
    measured = measure_cost(models, arguments.setups, arguments.rounds)
    return json.dumps(measured, indent=2) if arguments.json else cost_table(measured)
