"""The Space in `hub/space/`, and `ideal app` as a process."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml
from huggingface_hub import ModelCard

ROOT = Path(__file__).resolve().parents[2]
SPACE = ROOT / "hub" / "space"
ALLOWED = {"title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "license"}

UPLOAD = b'--x\r\nContent-Disposition: form-data; name="files"; filename="part.png"\r\n\r\nno picture\r\n--x--\r\n'


def pins(path):
    """Exact versions by the name of the package, in the spelling that pip compares."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in (line.split("==") for line in lines)}


def test_the_space_is_pinned_to_what_is_tested():
    pinned, tested = pins(SPACE / "requirements.txt"), pins(ROOT / "constraints.txt")
    assert pinned.items() <= tested.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["app"]]
    assert {re.match(r"[\w-]+", name)[0].lower() for name in needed} <= pinned.keys()


def test_the_settings_of_the_space():
    _, header, text = (SPACE / "README.md").read_text().split("---\n", 2)
    settings = yaml.safe_load(header)
    assert ALLOWED <= settings.keys() <= ALLOWED | {"short_description"}
    assert (settings["sdk"], settings["sdk_version"]) == ("gradio", pins(ROOT / "constraints.txt")["gradio"])
    assert (SPACE / settings["app_file"]).is_file()
    assert len(settings["short_description"]) <= 60
    assert settings["license"] == ModelCard.load(ROOT / "model_card.md").data.license == "apache-2.0"
    assert "Apache License 2.0" in text


@pytest.fixture
def space(tmp_path):
    """The folder of a Space, as docs/app.md makes it."""
    folder = tmp_path / "space"
    shutil.copytree(SPACE, folder)
    shutil.copytree(ROOT / "modeling_ideal", folder / "modeling_ideal", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_space_starts_serves_and_stops(space):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"GRADIO_TEMP_DIR": str(space / "uploads"), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "app.py", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=space, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        said = process.stdout.readline()
        assert said == f"Open http://127.0.0.1:{port}/ in a browser; Ctrl-C stops it.\n", process.stderr.read()
        with urlopen(f"http://127.0.0.1:{port}/") as response:
            page = response.read().decode()
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        with urlopen(Request(f"http://127.0.0.1:{port}/gradio_api/upload", UPLOAD, form)):
            uploaded = [path.name for path in space.glob("uploads/**/*") if path.is_file()]
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
    assert "Calibrate" in page
    assert 'analytics_enabled":false' in page.replace(" ", "")
    assert (process.returncode, out, error) == (130, "", "ideal: interrupted\n")
    assert uploaded == ["part.png"]
    assert not [path for path in space.glob("uploads/**/*") if path.is_file()]  # nothing stays
