"""`ideal evaluate`, `ideal tables` and `ideal cost`: accuracy and cost."""

import argparse

from .. import model_folder
from .arguments import add_device, add_layout, add_stage, examples, say


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the commands to the parser of `ideal`."""
    _add_evaluate(commands)
    _add_tables(commands)
    _add_cost(commands)


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="measure a model and baselines on a target data set with the paper's protocol",
        description="Draws one fixed reference set for every category, set-up and seed, and writes image and pixel "
        "metrics, in percent, to results.json, with tables.md and references.json beside it. The same command resumes "
        "a run that was stopped. Under `accelerate launch -m modeling_ideal evaluate ...` processes share the work.",
        **examples(
            """
ideal evaluate --model ideal-tiny --target my_parts/ --out results --pictures
ideal evaluate --model trained/model --target path/to/mpdd --setups N1A1 N4A1 --seeds 0 1 2 --out results/mpdd
ideal evaluate --backbone facebook/dinov2-small --target path/to/mpdd --methods all --out results/baselines
            """
        ),
    )
    source = evaluate.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model", type=model_folder, metavar="FOLDER", help="a trained IDEAL model: a folder or a Hub name"
    )
    source.add_argument(
        "--backbone",
        metavar="FOLDER",
        help="a pre-trained backbone: IDEAL without trained weights, and the other training-free methods",
    )
    add_stage(evaluate)
    add_device(evaluate)
    evaluate.add_argument("--onnx", metavar="FILE", help="run the backbone from a file made by `ideal export`")
    evaluate.add_argument("--target", required=True, metavar="DIR", help="folder of the target data set")
    add_layout(evaluate, "the target")
    evaluate.add_argument(
        "--setups",
        nargs="+",
        default=["N1A1", "N2A1", "N4A1", "N8A4"],
        metavar="NxAy",
        help="numbers of normal and abnormal references (default: N1A1 N2A1 N4A1 N8A4)",
    )
    evaluate.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0, 1, 2],
        metavar="SEED",
        help="one reference set for each (default: 0 1 2)",
    )
    evaluate.add_argument(
        "--settings",
        nargs="+",
        default=["general", "hard"],
        choices=["general", "hard"],
        help="general: all test images; hard: without the anomaly type of the references (default: both)",
    )
    evaluate.add_argument(
        "--methods",
        nargs="+",
        metavar="METHOD",
        help="ideal and baselines, or `all` (default: ideal; with --backbone, also every baseline that is quick)",
    )
    evaluate.add_argument(
        "--compare",
        nargs="+",
        default=[],
        metavar="NAME=FOLDER",
        help="more trained models with the same backbone, or rivals that `ideal train --method` has trained on it, as "
        "methods with these names; nagl, resad and foundad stand beside the paper's figures, and ideal_without_nve "
        "is the row of the ablation table for a model trained with erase_strength 0",
    )
    evaluate.add_argument(
        "--references", metavar="FILE", help="use the reference sets (references.json) of an earlier run"
    )
    evaluate.add_argument(
        "--smoothing", type=float, default=4.0, help="Gaussian smoothing of the anomaly maps, in pixels (default: 4)"
    )
    evaluate.add_argument("--cache", metavar="DIR", help="feature cache (default: OUT/features)")
    evaluate.add_argument(
        "--pictures", action="store_true", help="draw montages, curves and t-SNE plots to OUT/pictures"
    )
    evaluate.add_argument("--out", required=True, metavar="DIR", help="output folder")
    evaluate.set_defaults(run=_evaluate, extra="evaluation")


def _evaluate(arguments: argparse.Namespace) -> int:
    from ..evaluation.command import evaluate

    return say(evaluate(arguments))


def _add_tables(commands: argparse._SubParsersAction) -> None:
    tables = commands.add_parser(
        "tables",
        help="make Markdown tables from results, with the paper's figures beside them",
        description="Makes the tables that `ideal evaluate` writes, from one or more results.json: General, Hard, "
        "ablation, NVE as a plug-in, all metrics, and each category. Results on the same target must share the "
        "encoder, the seeds and the smoothing. Needs no model.",
        **examples("ideal tables results/mpdd/results.json results/visa/results.json --out tables.md"),
    )
    tables.add_argument("results", nargs="+", metavar="RESULTS.json")
    tables.add_argument("--out", metavar="FILE.md", help="file to write (default: print the tables)")
    tables.set_defaults(run=_tables, without_model=True)


def _tables(arguments: argparse.Namespace) -> int:
    from ..evaluation.report.command import make_tables

    return say(make_tables(arguments).rstrip("\n"))


def _add_cost(commands: argparse._SubParsersAction) -> None:
    cost = commands.add_parser(
        "cost",
        help="measure what a model costs: parameters, FLOPs, frames per second, memory",
        description="Scores one query at a time, with references that are encoded once and with references that are "
        "encoded again for every query, and prints a Markdown table with the paper's figures.",
        **examples(
            """
ideal cost --model ideal-tiny
ideal cost --backbone facebook/dinov2-small --setups N1A1 --json > cost.json
            """
        ),
    )
    source = cost.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model", type=model_folder, nargs="+", metavar="FOLDER", help="IDEAL models: folders or Hub names"
    )
    source.add_argument("--backbone", metavar="FOLDER", help="a pre-trained backbone, with a new head")
    add_stage(cost)
    add_device(cost)
    cost.add_argument(
        "--setups",
        nargs="+",
        default=["N1A1", "N8A4"],
        metavar="NxAy",
        help="numbers of normal and abnormal references (default: N1A1 N8A4)",
    )
    cost.add_argument("--rounds", type=int, default=15, help="number of times to measure everything (default: 15)")
    cost.add_argument("--json", action="store_true", help="print the figures as JSON")
    cost.set_defaults(run=_cost)


def _cost(arguments: argparse.Namespace) -> int:
    from ..evaluation.cost.command import cost

    return say(cost(arguments))
