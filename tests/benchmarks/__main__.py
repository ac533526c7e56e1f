"""`make bench`: run every benchmark, print the figures, write them to a JSON file."""

import argparse
import importlib
import json
import os
import pkgutil
import platform
from pathlib import Path

import torch
import transformers

from . import __path__ as benchmarks_path
from .load import check


def main() -> None:
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks_path) if module.name[0] != "_")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks.json"))
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long `load` drives each of its parts")
    arguments = parser.parse_args()
    results = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
    }
    for name in arguments.only:
        measure = importlib.import_module(f"{__package__}.{name}").measure
        figures = measure(arguments.seconds) if name == "load" else measure()
        results[name] = figures
        print(f"\n{name}")
        for label, value in figures.items():
            print(f"  {label:<66} {value:10.3f}")
    temporary = arguments.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=2) + "\n")
    os.replace(temporary, arguments.out)
    print(f"\nwritten to {arguments.out}")
    if "load" in results:
        check(results["load"])  # when its figures are safe


if __name__ == "__main__":
    main()
