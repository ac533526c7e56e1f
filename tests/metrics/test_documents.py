"""What the docstrings and the card of the evaluate module show is run; evaluate itself in a process of its own."""

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from modeling_ideal.metrics import image_metrics, pixel_metrics, streaming

ROOT = Path(__file__).resolve().parents[2]

# The module must load where our package is not installed, so importing it is made to fail.
EVALUATE = r"""
import sys
sys.modules["modeling_ideal"] = None

import doctest
import json
import evaluate
import numpy as np

def message(call):
    try:
        call()
    except (TypeError, ValueError) as error:
        return str(error)

images, pixels = evaluate.load("hub/anomaly_metrics"), evaluate.load("hub/anomaly_metrics", "pixel")
examples = doctest.DocTestParser().get_doctest(images.inputs_description, {}, "examples", None, 0)
rng = np.random.default_rng(0)
maps, masks = rng.random((3, 20, 30)), rng.random((3, 20, 30)) < 0.1
sizes = [(5, 9), (8, 8)]
for size in sizes:
    pixels.add(prediction=maps[0, : size[0], : size[1]], reference=255 * masks[0, : size[0], : size[1]])
print(json.dumps({
    "doctest": doctest.DocTestRunner().run(examples),
    "image": images.compute(predictions=maps[:, 0, 0], references=[True, False, True]),
    "ragged": pixels.compute(fpr_limit=0.1),
    "pixel": pixels.compute(predictions=maps, references=masks),
    "bad label": message(lambda: images.compute(predictions=[0.1, 0.2], references=[0, 2])),
    "bad option": message(lambda: images.compute(predictions=[0.1, 0.2], references=[0, 1], fpr_limit=0.1)),
    "bad configuration": message(lambda: evaluate.load("hub/anomaly_metrics", "voxel")),
}))
"""


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path_factory.mktemp("hub"))}
    run = subprocess.run(
        [sys.executable, "-c", EVALUATE], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_docstring_examples():
    assert doctest.testmod(streaming) == (0, 5)


def test_the_evaluate_module_runs_its_examples(evaluated):
    failed, attempted = evaluated["doctest"]
    assert (failed, attempted) == (0, 8)


def test_the_evaluate_module_equals_the_package(evaluated):
    rng = np.random.default_rng(0)
    maps, masks = rng.random((3, 20, 30)), rng.random((3, 20, 30)) < 0.1
    parts = [(slice(5), slice(9)), (slice(8), slice(8))]
    ragged = pixel_metrics([maps[0][part] for part in parts], [masks[0][part] for part in parts], fpr_limit=0.1)
    assert evaluated["image"] == image_metrics(maps[:, 0, 0], [1, 0, 1])
    assert evaluated["ragged"] == ragged
    assert evaluated["pixel"] == pixel_metrics(maps, masks)


def test_the_evaluate_module_refuses_as_the_package_does(evaluated):
    assert evaluated["bad label"] == "labels: expected 0 (normal) or 1 (anomalous), got [0.0, 2.0]"
    assert "fpr_limit" in evaluated["bad option"]
    assert evaluated["bad configuration"] == 'configuration: expected "image" or "pixel", got "voxel"'
