"""The small Hub of the tests behaves to the real client as the real one does."""

import http.client
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .hub_server import READER, STRANGER, WRITER, serve

LARGE = bytes(range(256)) * 5000
CARD = "---\npipeline_tag: image-classification\nlibrary_name: transformers\n---\nText\n"
UPLOAD = """
import sys
from huggingface_hub import HfApi

api = HfApi()
api.create_repo("org/ideal", exist_ok=True)
api.upload_folder(repo_id="org/ideal", folder_path=sys.argv[1])
"""
DOWNLOAD = """
from pathlib import Path
from huggingface_hub import hf_hub_download, model_info, snapshot_download

folder = Path(snapshot_download("org/ideal"))
for path in filter(Path.is_file, folder.rglob("*")):
    assert Path(hf_hub_download("org/ideal", str(path.relative_to(folder)))) == path
info = model_info("org/ideal")
assert (info.pipeline_tag, info.library_name) == ("image-classification", "transformers")
print(folder)
"""
HISTORY = """
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError, RevisionNotFoundError

def refused(call, *arguments, error=HfHubHTTPError, **named):
    try:
        call(*arguments, **named)
    except error as caught:
        return caught.response.status_code

def add(path, text):
    return CommitOperationAdd(path, text.encode())

api = HfApi()
name = "org/ideal"
api.create_repo(name)
assert refused(api.create_repo, name) == 409
added = [add("a.txt", "one"), add("deep/er/b.txt", "b"), add("old/c.txt", "c")]
first = api.create_commit(name, added, commit_message="1")
api.create_tag(name, tag="v1")
assert refused(api.create_tag, name, tag="v1") == 409
doomed = [CommitOperationDelete("deep/er/b.txt"), CommitOperationDelete("old/")]
second = api.create_commit(name, [add("a.txt", "two"), *doomed], commit_message="2", parent_commit=first.oid)
assert refused(api.create_commit, name, [add("a.txt", "3")], commit_message="3", parent_commit=first.oid) == 412
assert refused(api.create_commit, name, [CommitOperationDelete("no.txt")], commit_message="4") == 404
request = api.create_commit(name, [add("a.txt", "asked")], commit_message="5", create_pr=True)
api.create_branch(name, branch="next", revision="v1")
refs = api.list_repo_refs(name, include_pull_requests=True)
assert [ref.name for ref in refs.branches] == ["main", "next"]
assert [(ref.name, ref.target_commit) for ref in refs.tags] == [("v1", first.oid)]
assert [ref.ref for ref in refs.pull_requests] == [request.pr_revision] == ["refs/pr/1"]
for revision, text in {"main": "two", "v1": "one", "next": "one", "refs/pr/1": "asked", first.oid: "one"}.items():
    with open(hf_hub_download(name, "a.txt", revision=revision)) as file:
        assert file.read() == text
assert api.list_repo_files(name) == [".gitattributes", "a.txt"]
listed = [entry.path for entry in api.list_repo_tree(name, "deep", revision="v1", recursive=True)]
assert listed == ["deep/er", "deep/er/b.txt"]
found = api.get_paths_info(name, ["a.txt", "deep", "no.txt"], revision="v1")
assert [entry.path for entry in found] == ["a.txt", "deep"]
assert refused(hf_hub_download, name, "no.txt", error=RemoteEntryNotFoundError) == 404
assert refused(snapshot_download, name, revision="v2", error=RevisionNotFoundError) == 404
assert api.whoami()["name"] == "tester"
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with small files and a large one."""
    folder = tmp_path / "built"
    (folder / "sub folder").mkdir(parents=True)
    (folder / "sub folder" / "config.json").write_text('{"size": 3}')
    (folder / "README.md").write_text(CARD)
    (folder / "model.safetensors").write_bytes(LARGE)
    return folder


def content(folder):
    """The files of a folder by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ask(hub, method, path, body=b"", **headers):
    """The status and the content that one request gets, without any client library."""
    connection = http.client.HTTPConnection(urlsplit(hub.address).netloc, timeout=5)
    try:
        connection.request(method, path, body=body, headers=headers, encode_chunked=not isinstance(body, bytes))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_what_is_uploaded_is_downloaded(hub, folder, tmp_path):
    result = hub.run(UPLOAD, folder, home=tmp_path / "uploader")
    assert result.returncode == 0, result.stderr
    assert hub.files("org/ideal") == content(folder)
    assert list(hub.objects.values()) == [LARGE], "the small files go with the commit"
    result = hub.run(DOWNLOAD, home=tmp_path / "reader", user=None)
    assert result.returncode == 0, result.stderr
    downloaded = content(Path(result.stdout.splitlines()[-1]))
    assert downloaded.pop(".gitattributes")
    assert downloaded == content(folder)
    assert {request.user for request in hub.seen("GET|HEAD", "/resolve/")} == {None}
    assert not hub.seen("CONNECT")
    assert not hub.seen(path="^http")


def test_branches_tags_requests_and_deletions(hub, tmp_path):
    result = hub.run(HISTORY, home=tmp_path / "home")
    assert result.returncode == 0, result.stderr
    assert hub.files("org/ideal") == {"a.txt": b"two"}
    assert hub.files("org/ideal", revision="refs/pr/1") == {"a.txt": b"asked"}


def test_an_upload_that_broke_off_goes_on(hub, folder, tmp_path):
    hub.fail("PUT", "/lfs/")
    hub.fail("POST", "/commit/")
    result = hub.run(UPLOAD, folder, home=tmp_path / "uploader")
    assert result.returncode != 0
    assert "500 Internal Server Error" in result.stderr
    assert "the test asked for this failure" in result.stderr
    assert [request.status for request in hub.seen("PUT")] == [500, 200], "a large file is tried again"
    assert [request.status for request in hub.seen("POST", "/commit/")] == [500]
    assert hub.files("org/ideal") == {}
    result = hub.run(UPLOAD, folder, home=tmp_path / "uploader")
    assert result.returncode == 0, result.stderr
    assert hub.files("org/ideal") == content(folder)
    assert len(hub.seen("PUT")) == 2, "what is there already is not sent again"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (STRANGER, "Invalid credentials in Authorization header"),
        (READER, "403 Forbidden: You don't have the rights to write here"),
        (None, "You don't have the rights to write here"),
    ],
)
def test_a_refused_token_publishes_nothing(hub, folder, tmp_path, user, message):
    result = hub.run(UPLOAD, folder, home=tmp_path / "uploader", user=user)
    assert result.returncode != 0
    assert message in result.stderr
    assert {request.user for request in hub.log} == {user}
    assert not hub.repositories
    assert not hub.objects


def test_a_large_file_must_be_there_before_its_commit_and_be_itself(hub):
    token = {"Authorization": f"Bearer {WRITER}"}
    assert ask(hub, "POST", "/api/repos/create", b'{"name": "ideal", "organization": "org"}', **token)[0] == 200
    line = b'{"key": "lfsFile", "value": {"path": "a", "algo": "sha256", "oid": "%s", "size": 1}}' % (b"0" * 64)
    assert ask(hub, "POST", "/api/models/org/ideal/commit/main", line, **token)[0] == 400
    assert ask(hub, "PUT", f"/lfs/{'0' * 64}", b"other")[0] == 400
    assert hub.files("org/ideal") == {}
    assert hub.objects == {}


def test_a_body_may_come_in_chunks_and_a_part_may_be_asked_for(hub):
    oid = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert ask(hub, "PUT", f"/lfs/{oid}", iter([b"hel", b"lo"]), **{"Transfer-Encoding": "chunked"})[0] == 200
    assert hub.objects == {oid: b"hello"}
    token = {"Authorization": f"Bearer {WRITER}"}
    ask(hub, "POST", "/api/repos/create", b'{"name": "parts", "organization": "org", "type": "dataset"}', **token)
    line = b'{"key": "lfsFile", "value": {"path": "a", "algo": "sha256", "oid": "%s", "size": 5}}' % oid.encode()
    assert ask(hub, "POST", "/api/datasets/org/parts/commit/main", line, **token)[0] == 200
    place = "/datasets/org/parts/resolve/main/a"
    assert ask(hub, "GET", place) == (200, b"hello")
    assert ask(hub, "GET", place, Range="bytes=1-3") == (206, b"ell")
    assert ask(hub, "GET", place, Range="bytes=3-") == (206, b"lo")
    assert ask(hub, "GET", place, Range="bytes=5-")[0] == 416
    assert ask(hub, "HEAD", place) == (200, b"")


def test_other_hosts_are_refused_and_requests_are_counted():
    with serve(max_requests=3) as hub:
        assert ask(hub, "GET", "http://example.org/a")[0] == 403
        assert ask(hub, "CONNECT", "example.org:443")[0] == 403
        assert ask(hub, "GET", "/nowhere")[0] == 404
        assert ask(hub, "GET", "/nowhere")[0] == 400
        assert [request.path for request in hub.seen(path="example")] == ["http://example.org/a", "example.org:443"]
    with pytest.raises(ConnectionRefusedError):
        ask(hub, "GET", "/nowhere")


def test_the_server_stops_by_itself():
    with serve(seconds=0.1) as hub:
        time.sleep(0.5)
        with pytest.raises(ConnectionRefusedError):
            ask(hub, "GET", "/nowhere")
