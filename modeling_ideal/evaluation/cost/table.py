"""The cost table: what was measured, then the paper's Table 3 (right)."""

from ...writing.tables import ABSENT, markdown_table, number
from ..report.paper import COST

ONCE, EVERY_TIME = "references_once", "references_every_time"
WAYS = {ONCE: "encoded once", EVERY_TIME: "encoded for every query"}
HEAD = (
    *("model", "set-up", "references"),
    *("parameters, M", "trained, M", "FLOPs, 10^10", "frames a second", "peak memory, MiB"),
)


def cost_table(measured: dict) -> str:
    """The result of `measure_cost` as a Markdown table, the paper's rows last, with a note on what is counted."""
    rows = []
    for name, model in measured["models"].items():
        sizes = [number(model[key] / 1e6, 2) for key in ("parameters", "trained_parameters")]
        for setup, ways in model["setups"].items():
            for way, figures in ways.items():
                speed = [number(figures["flops"] / 1e10, 2), number(figures["frames_per_second"], 2)]
                rows.append([name, setup, WAYS[way], *sizes, *speed, number(figures["peak_mebibytes"], 0)])
    for name, theirs in COST.items():
        speed = [number(theirs.flops_1e10, 2), number(theirs.frames_per_second, 2)]
        rows.append([f"{name}, paper", ABSENT, ABSENT, number(theirs.parameters_millions, 2), ABSENT, *speed, ABSENT])
    machine = measured["machine"]
    sides = sorted({model["image_size"] for model in measured["models"].values()})
    notes = (
        f"One query at a time of {' and '.join(f'{side} x {side}' for side in sides)} pixels, without reading and "
        f"resizing it; {machine['processor']}, {machine['threads']} thread(s), torch {machine['torch']}, medians of "
        f"{machine['rounds']} round(s). FLOPs of matrix products, convolutions and attention, two a multiply-add; "
        "eigenvectors, top-k and element-wise work are not counted. Peak memory of a whole process on the CPU, with "
        "Python, torch and the weights. The paper names an RTX 3090; the set-up, how often it encoded the "
        "references, and what it counts as a FLOP, it does not say."
    )
    return f"{markdown_table(HEAD, rows, words=3)}\n\n{notes}"
