"""Load a built folder as its users do, in a separate process where this package cannot be imported.

python -I hub/fresh_load.py FOLDER PICTURES THREADS
"""

import json
import sys
from pathlib import Path
from typing import Any

PICTURES = {"query": "query.png", "normal": "normal.png", "abnormal": "abnormal.png", "mask": "mask.png"}


class _Blocked:
    """An import finder that refuses the package even if it is installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == "modeling_ideal":
            raise ImportError(f"{name} must not be needed")


def model_scores(model: Any, processor: Any, pictures: Path) -> list[float]:
    """Patch scores of the query, with processor and model."""
    query, normal, abnormal, mask = (str(pictures / name) for name in PICTURES.values())
    inputs = processor(query=query, normal_refs=[normal], abnormal_refs=[abnormal], masks=[mask])
    return model(**inputs).patch_scores.flatten().tolist()


def pipeline_scores(pipe: Any, pictures: Path) -> list[float]:
    """Score of the query and part of its map, with the pipeline."""
    query, normal, abnormal, mask = (str(pictures / name) for name in PICTURES.values())
    result = pipe(query, normal=[normal], abnormal=[abnormal], masks=[mask])
    return [result["score"], *result["anomaly_map"][::8, ::8].ravel().tolist()]


def main(folder: str, pictures: Path, threads: int) -> dict[str, list[float]]:
    """Load a folder in every possible way, and return the scores of each."""
    import torch
    from transformers import AutoConfig, AutoImageProcessor, AutoModel, pipeline

    torch.set_num_threads(threads)  # rounding depends on the number of threads among which sums are divided
    AutoConfig.from_pretrained(folder, trust_remote_code=True)
    processor = AutoImageProcessor.from_pretrained(folder, trust_remote_code=True)
    model, info = AutoModel.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    if any(info.values()):
        raise ValueError(f"expected exactly the weights of the model, got {info}")
    pipes = {
        "pipeline by task": pipeline("anomaly-detection", model=folder, trust_remote_code=True),
        "pipeline by model": pipeline(model=folder, trust_remote_code=True),
        "pipeline by object": pipeline(
            "anomaly-detection", model=model, image_processor=processor, trust_remote_code=True
        ),
    }
    scores = {"model": model_scores(model, processor, pictures)}
    return scores | {name: pipeline_scores(pipe, pictures) for name, pipe in pipes.items()}


if __name__ == "__main__":
    sys.meta_path.insert(0, _Blocked())
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
