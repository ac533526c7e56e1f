"""What a stranger has after `pip install .`: run from an empty folder by the Python of a fresh environment.

    python tests/installed.py

`make installed` builds the wheel, installs it without extras into an empty environment, and runs this.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

IDEAL = str(Path(sysconfig.get_path("scripts"), "ideal"))
NOT_INSTALLED = (
    "accelerate",
    "datasets",
    "evaluate",
    "matplotlib",
    "scikit-learn",
)  # extras, which must not be needed

PIPELINE = """
import modeling_ideal
from transformers import pipeline

result = pipeline("anomaly-detection")("ideal-demo/query_03.png", references="part.safetensors")
print(result["label"])
"""


def run(*command: str, code: int = 0) -> str:
    """What a command prints; it must end with this exit code."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise SystemExit(f"{command}: expected exit code {code}, got {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def expect(text: str, *words: str) -> None:
    """Every one of these words is there."""
    for word in words:
        if word not in text:
            raise SystemExit(f"expected {word!r} in:\n{text}")


def check() -> None:
    """The commands of the README that need no extra, and what the others say without theirs."""
    for name in NOT_INSTALLED:
        try:
            raise SystemExit(f"expected an environment without {name}, got {distribution(name).version}")
        except PackageNotFoundError:
            continue
    expect(run(IDEAL, "--help"), "demo", "references", "detect", "train", "evaluate", "build", "push", "export")
    expect(run(IDEAL, "--version"), "modeling-ideal ")
    expect(run(IDEAL, "demo"), " of 22 right", "ideal-demo/index.html")
    for folder, pattern in (("good", "normal_*.png"), ("bad", "abnormal_??.png"), ("masks", "abnormal_*_mask.png")):
        Path(folder).mkdir()
        for picture in Path("ideal-demo").glob(pattern):
            picture.rename(Path(folder, picture.name))
    references = ("--normal", "good", "--abnormal", "bad", "--masks", "masks", "--out", "part.safetensors")
    expect(run(IDEAL, "references", *references), "6 normal and 2 abnormal references, defects marked", "threshold")
    run(IDEAL, "detect", "--references", "part.safetensors", "ideal-demo/query_0[0-3].png", "--out", "found", code=1)
    images = json.loads(Path("found", "results.json").read_text())["images"]
    if [entry["label"] for entry in images][-1] != "anomalous" or len(images) != 4:
        raise SystemExit(f"expected four verdicts, the last one anomalous, got {images}")
    expect(run(sys.executable, "-c", PIPELINE), "anomalous")
    expect(run(IDEAL, "build", "--model", "ideal-tiny", "--out", "built"), "scores as the source does")
    record = json.loads(Path("built", "build.json").read_text())
    if record["commit"] != record["version"]:
        raise SystemExit(f"expected the version of the package as the commit of the build, got {record['commit']!r}")
    train = ("train", "--source", "good", "--output_dir", "trained", "--model", "ideal-tiny")
    expect(run(IDEAL, *train, code=3), "pip install 'modeling-ideal[training]'")
    evaluate = ("evaluate", "--model", "ideal-tiny", "--target", "good", "--out", "measured")
    expect(run(IDEAL, *evaluate, code=3), "pip install 'modeling-ideal[evaluation]'")
    export = ("export", "--model", "ideal-tiny", "--out", "backbone.onnx")
    expect(run(IDEAL, *export, code=3), "pip install 'modeling-ideal[export]'")
    expect(run(IDEAL, "app", code=3), "gradio is not installed: pip install 'modeling-ideal[app]'")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        check()
        os.chdir("/")
    print("installed: demo, references, detect, pipeline and build work; the other commands name their extra")
