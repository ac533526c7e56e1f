"""The small Hub of the tests behaves to the real client as the real one does."""

import json
import os
import sys

import pytest

from .hub_server import READER, STRANGER, serve

LARGE = bytes(range(256)) * 5000
UPLOAD = """
import sys
from huggingface_hub import HfApi

api = HfApi()
api.create_repo("org/ideal", exist_ok=True)
api.upload_folder(repo_id="org/ideal", folder_path=sys.argv[1])
"""
DOWNLOAD = """
import sys
from pathlib import Path
from huggingface_hub import hf_hub_download, snapshot_download

folder = Path(snapshot_download("org/ideal", revision=sys.argv[1]))
for path in folder.rglob("*"):
    if path.is_file():
        assert Path(hf_hub_download("org/ideal", str(path.relative_to(folder)), revision=sys.argv[1])) == path
print(folder)
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a small and a large file."""
    folder = tmp_path / "built"
    (folder / "sub folder").mkdir(parents=True)
    (folder / "sub folder" / "config.json").write_text('{"size": 3}')
    (folder / "README.md").write_text("---\npipeline_tag: image-classification\nlibrary_name: transformers\n---\nText\n")
    (folder / "model.safetensors").write_bytes(LARGE)
    return folder


def content(folder):
    """The files of a folder by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_uploaded_is_downloaded(hub, folder, tmp_path):
    result = hub.run(UPLOAD, folder, home=tmp_path / "uploader")
    assert result.returncode == 0, result.stderr
    assert hub.files("org/ideal") == content(folder)
    assert [len(large) for large in hub.objects.values()] == [len(LARGE)], "the small files go with the commit"
    result = hub.run(DOWNLOAD, "main", home=tmp_path / "reader", user=None)
    assert result.returncode == 0, result.stderr
    downloaded = content_of_snapshot(result)
    assert downloaded.pop(".gitattributes")
    assert downloaded == content(folder)
    assert {request.user for request in hub.seen("GET|HEAD", "/resolve/")} == {None}
    assert not hub.seen(path="^https?://")


def content_of_snapshot(result):
    """The files of the folder whose name a script printed last."""
    from pathlib import Path

    return content(Path(result.stdout.splitlines()[-1]))
