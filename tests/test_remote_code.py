"""The flat files load as remote code, in a process where the package cannot be imported, and score the same."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import modeling_ideal
from modeling_ideal import IdealImageProcessor

from .conftest import random_images, random_masks, tiny_model

PACKAGE = Path(modeling_ideal.__file__).parent
NOT_SHIPPED = {"__init__.py", "__main__.py", "cli.py", "version.py"}
LOAD = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "modeling_ideal":
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Blocked())
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


def test_flat_files_load_without_the_package(tmp_path):
    import torch

    folder = tmp_path / "ideal"
    model = tiny_model()
    model.save_pretrained(folder)
    IdealImageProcessor(size=32, patch_size=4).save_pretrained(folder)
    for path in PACKAGE.glob("*.py"):
        if path.name not in NOT_SHIPPED:
            shutil.copy(path, folder)
    for name, entries in {
        "config.json": {"AutoConfig": "configuration_ideal.IdealConfig", "AutoModel": "modeling_ideal.IdealModel"},
        "preprocessor_config.json": {"AutoImageProcessor": "image_processing_ideal.IdealImageProcessor"},
    }.items():
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**values, "auto_map": entries}))
    inputs = {
        "query": random_images(2),
        "normal_refs": random_images(2, seed=1),
        "abnormal_refs": random_images(1, seed=2),
        "masks": random_masks(1),
    }
    torch.save(inputs, tmp_path / "inputs.pt")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder), str(tmp_path / "inputs.pt")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == model(**inputs).scores.tolist()
