"""The flat files load as remote code, in a process where the package cannot be imported, and score the same."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import pipeline

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel
from modeling_ideal.saving import shipped_files

from .conftest import random_images, random_masks, tiny_model
from .pictures import photograph

SHIPPED = {path.name: path.read_bytes() for path in shipped_files()}
WITHOUT_THE_PACKAGE = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "modeling_ideal":
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Blocked())
"""
LOAD = """
import torch
from transformers import AutoConfig, AutoImageProcessor, AutoModel

folder = sys.argv[1]
AutoConfig.from_pretrained(folder, trust_remote_code=True)
AutoImageProcessor.from_pretrained(folder, trust_remote_code=True)
model, info = AutoModel.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
assert not any(info.values()), info
assert not any(parameter.requires_grad for parameter in model.backbone.parameters())
print(json.dumps(model(**torch.load(sys.argv[2])).scores.tolist()))
"""
PIPELINES = """
import numpy as np
from transformers import AutoImageProcessor, AutoModel, pipeline

folder, pictures = sys.argv[1], np.load(sys.argv[2])
trust = {"trust_remote_code": True}
pipe = pipeline("anomaly-detection", model=folder, **trust)
references = pipe.set_references(
    normal=pictures[:2], abnormal=pictures[2], masks=[(4, 4, 20, 16)], types=["dent"], false_alarm=0.1
)
references.save("product.safetensors")
results = [pipe(pictures[3:], batch_size=2, return_regions=True)]
results.append(list(pipeline(model=folder, **trust)((each for each in pictures[3:]), references=references)))
model, processor = AutoModel.from_pretrained(folder, **trust), AutoImageProcessor.from_pretrained(folder, **trust)
by_object = pipeline("anomaly-detection", model=model, image_processor=processor)
results.append(by_object(pictures[3:], references="product.safetensors"))
pipe.save_pretrained("again")
results.append(pipeline(model="again", **trust)(pictures[3:], references="product.safetensors"))
for way in results:
    for result in way:
        result["anomaly_map"] = float(result["anomaly_map"].astype(float).sum())
        result.pop("regions", None)
print(json.dumps(results))
"""


def run(script, *arguments, folder):
    """What a script prints last as JSON, from a process without the package, in `folder`."""
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE + script, *map(str, arguments)],
        env={**os.environ, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(params=["pipeline", "model and processor"])
def saved(request, tmp_path):
    """A folder that the pipeline has saved, or model and processor one after the other, as training does."""
    model, processor = tiny_model(), IdealImageProcessor(size=32, patch_size=4)
    parts = (AnomalyDetectionPipeline(model=model, image_processor=processor),)
    for part in parts if request.param == "pipeline" else (model, processor):
        part.save_pretrained(tmp_path / "ideal")
    return tmp_path / "ideal"


def test_what_a_model_saves_loads_without_the_package(tmp_path):
    folder = tmp_path / "ideal"
    model = tiny_model()
    model.save_pretrained(folder)
    IdealImageProcessor(size=32, patch_size=4).save_pretrained(folder)
    inputs = {
        "query": random_images(2),
        "normal_refs": random_images(2, seed=1),
        "abnormal_refs": random_images(1, seed=2),
        "masks": random_masks(1),
    }
    torch.save(inputs, tmp_path / "inputs.pt")
    scores = run(LOAD, folder, tmp_path / "inputs.pt", folder=tmp_path)
    assert scores == model(**inputs).scores.tolist()


def test_a_saved_folder_carries_its_code_and_works_as_a_pipeline_without_the_package(saved, tmp_path):
    assert {path.name: path.read_bytes() for path in saved.glob("*.py")} == SHIPPED
    pictures = np.stack([photograph(seed) for seed in range(6)])
    np.save(tmp_path / "pictures.npy", pictures)
    by_task, *others = run(PIPELINES, saved, tmp_path / "pictures.npy", folder=tmp_path)
    assert all(other == by_task for other in others)

    pipe = pipeline("anomaly-detection", model=str(saved))
    pipe.set_references(
        normal=pictures[:2], abnormal=pictures[2], masks=[(4, 4, 20, 16)], types=["dent"], false_alarm=0.1
    )
    expected = pipe(pictures[3:])
    for result, other in zip(by_task, expected, strict=True):
        assert result == {**other, "anomaly_map": float(other["anomaly_map"].astype(float).sum())}


@pytest.mark.parametrize("trust", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}])
def test_with_the_package_its_own_code_is_used_and_no_trust_is_needed(saved, trust):
    pipes = [pipeline("anomaly-detection", model=str(saved), **trust)]
    if trust != {"trust_remote_code": False}:  # transformers then takes no task from the folder
        pipes.append(pipeline(model=str(saved), **trust))
    for pipe in pipes:
        assert type(pipe) is AnomalyDetectionPipeline
        assert type(pipe.model) is IdealModel
        assert type(pipe.image_processor) is IdealImageProcessor
    config = json.loads((saved / "config.json").read_text())
    pipes[0].model.config.save_pretrained(saved)
    assert json.loads((saved / "config.json").read_text())["custom_pipelines"] == config["custom_pipelines"]
