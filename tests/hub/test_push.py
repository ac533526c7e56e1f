"""`ideal push`: one commit or pull request with everything, or nothing; then anyone can load it by its name."""

import json
import shutil
import subprocess

import pytest
import torch

from hub import files, fresh_load, push
from hub.verify import draw_pictures
from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel, __version__
from modeling_ideal.cli import main

from ..conftest import COMMIT, random_images, tiny_model
from ..hub_server import READER, STRANGER, WRITER

PUBLISH = """
import os, sys
from pathlib import Path
from hub.push import publish

folder, *attempts = sys.argv[1:]
for attempt in attempts:
    way, user, tag = attempt.split()
    os.environ["HF_TOKEN"] = user
    try:
        print("done:", publish(Path(folder), "org/ideal", way == "commit", tag if tag != "-" else None, False))
    except (OSError, ValueError) as error:
        print("refused:", str(error).replace("\\n", " "))
"""
LOAD = """
import importlib.util, json, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("fresh_load", sys.argv[1])
fresh_load = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fresh_load)
print(json.dumps(fresh_load.main("org/ideal", Path(sys.argv[2]), int(sys.argv[3]))))
"""


@pytest.fixture
def clean(monkeypatch):
    """The clone is at the commit that the repository was built from; verifying it is recorded, not done."""
    verified = []
    monkeypatch.setattr(push, "source_commit", lambda: COMMIT)
    monkeypatch.setattr(push, "verify", lambda folder, *_: verified.append(folder))
    return verified


@pytest.fixture
def large(repository, tmp_path):
    """The repository with a references file that is too large for a commit itself."""
    folder = tmp_path / "large"
    shutil.copytree(repository, folder)
    (folder / "references").mkdir()
    (folder / "references" / "bottle.safetensors").write_bytes(bytes(range(256)) * 5000)
    return folder


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def attempts(hub, folder, home, *wanted):
    """What a process says that publishes a folder several times."""
    result = hub.run(PUBLISH, folder, *wanted, home=home, seconds=600)
    assert result.returncode == 0, result.stderr
    return [line for line in result.stdout.splitlines() if line.startswith(("done:", "refused:"))]


def test_refused_broken_off_resumed_tagged(hub, large, tmp_path):
    hub.fail("PUT", "/lfs/")
    hub.fail("POST", "/commit/")
    commit = f"commit {WRITER} v1"
    said = attempts(hub, large, tmp_path / "owner", f"commit {STRANGER} v1", f"request {READER} -", *[commit] * 3)

    assert "Invalid credentials" in said[0]
    assert "403 Forbidden" in said[1]
    assert all("Nothing was published: log in with a token that may write there" in line for line in said[:2])
    changes = {request.user for request in hub.seen("POST|PUT|DELETE") if request.status < 400}
    assert changes == {WRITER, None}, "None: an upload has a signed address instead of a token"

    assert said[2].startswith("refused: org/ideal: ")
    assert "500 Internal Server Error" in said[2]
    assert "run the same command again; files that are on the server are not sent twice" in said[2]
    uploads = [request.path for request in hub.seen("PUT") if request.status == 200]
    assert len(uploads) == len(set(uploads)) == len(hub.objects) == 2, "weights and references, each sent once"

    assert said[3].startswith("done: http")
    assert said[3].endswith(", tagged v1")
    assert [request.status for request in hub.seen("POST", "/commit/")] == [500, 200]
    assert hub.files("org/ideal") == hub.files("org/ideal", revision="v1") == content(large)
    assert "--tag: expected a new tag, got v1, which org/ideal already has" in said[4]


def test_what_was_pushed_loads_by_its_name_without_the_package(hub, repository, tmp_path):
    asked, _ = attempts(hub, repository, tmp_path / "owner", f"request {WRITER} -", f"commit {WRITER} -")
    assert asked.endswith("/org/ideal/discussions/1")
    assert hub.files("org/ideal") == hub.files("org/ideal", revision="refs/pr/1") == content(repository)

    draw_pictures(tmp_path)
    arguments = (fresh_load.__file__, tmp_path, torch.get_num_threads())
    result = hub.run(LOAD, *arguments, home=tmp_path / "stranger", user=None, package=False, seconds=600)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    model = IdealModel.from_pretrained(repository)
    processor = IdealImageProcessor.from_pretrained(repository)
    assert found.pop("model") == fresh_load.model_scores(model, processor, tmp_path)
    expected = fresh_load.pipeline_scores(AnomalyDetectionPipeline(model=model, image_processor=processor), tmp_path)
    assert found == dict.fromkeys(["pipeline by task", "pipeline by model", "pipeline by object"], expected)
    assert not hub.seen("CONNECT")


def test_a_dry_run_checks_everything_and_says_what_it_would_do(repository, clean, capsys):
    arguments = [
        "push",
        "--folder",
        str(repository),
        "--repo",
        "org/ideal",
        "--commit",
        "--tag",
        "v0.1.0",
        "--dry-run",
    ]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    size = (repository / "model.safetensors").stat().st_size
    for line in (
        "create org/ideal",
        f"upload model.safetensors ({size:,} bytes)",
        "upload build.json",
        "tag it v0.1.0",
    ):
        assert line in said
    assert said.count("upload ") == len(content(repository))
    assert clean == [repository]


def test_a_tag_waits_for_the_merge(repository, clean, capsys):
    assert main(["push", "--folder", str(repository), "--repo", "org/ideal", "--tag", "v1"]) == 3
    assert "--tag: expected --commit with it, got a pull request" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: (folder / "build.json").unlink(),
            "expected a folder made by `ideal build`, got one without build.json",
        ),
        (lambda folder: (folder / "losses.py").write_text(""), r"as they were built, got others: \['losses.py'\]"),
        (lambda folder: (folder / "losses.py").unlink(), r"as they were built, got others: \['losses.py'\]"),
        (lambda folder: (folder / "secret.txt").write_text(""), r"got others: \['secret.txt'\]"),
    ],
)
def test_a_folder_that_was_changed_is_refused(repository, tmp_path, clean, change, message):
    folder = tmp_path / "changed"
    shutil.copytree(repository, folder)
    push.check_folder(folder)
    change(folder)
    with pytest.raises(ValueError, match=message):
        push.check_folder(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"", r"expected .safetensors files in references/, got references/notes.txt"),
        ("bottle.safetensors", b"", r"references/bottle.safetensors: expected a safetensors file of IDEAL references"),
    ],
)
def test_what_was_added_to_a_build_are_references(repository, tmp_path, clean, name, content, message):
    folder = tmp_path / "added"
    shutil.copytree(repository, folder)
    (folder / "references").mkdir()
    (folder / "references" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        push.check_folder(folder)


def test_references_of_the_model_may_be_added_and_those_of_another_may_not(repository, tmp_path, clean):
    folder = tmp_path / "added"
    shutil.copytree(repository, folder)
    (folder / "references").mkdir()
    path = folder / "references" / "bottle.safetensors"
    IdealModel.from_pretrained(repository).encode_references(random_images(1)).save(path)
    push.check_folder(folder)
    tiny_model(seed=1).encode_references(random_images(1)).save(path)
    with pytest.raises(ValueError, match=r"references/bottle.safetensors: "):
        push.check_folder(folder)


def test_code_of_another_version_is_refused(repository, tmp_path, clean):
    folder = tmp_path / "stale"
    shutil.copytree(repository, folder)
    (folder / "losses.py").write_text("")
    record = json.loads((folder / "build.json").read_text())
    (folder / "build.json").write_text(json.dumps({**record, "sha256": files.digests(folder)}))
    with pytest.raises(ValueError, match=r"expected the code of this version, got other code in \['losses.py'\]"):
        push.check_folder(folder)


def test_a_push_deletes_what_an_earlier_build_has_put_and_nothing_else(hub, repository, tmp_path):
    earlier = tmp_path / "earlier"
    shutil.copytree(repository, earlier)
    (earlier / "backbone.onnx").write_bytes(b"old")
    (earlier / "old.py").write_text("old")
    record = json.loads((earlier / "build.json").read_text())
    (earlier / "build.json").write_text(json.dumps({**record, "sha256": files.digests(earlier)}))
    (earlier / "mine.py").write_text("mine")
    [first] = attempts(hub, earlier, tmp_path / "owner", f"commit {WRITER} -")
    [second] = attempts(hub, repository, tmp_path / "owner", f"commit {WRITER} -")
    assert first.startswith("done:")
    assert second.startswith("done:")
    assert hub.files("org/ideal") == content(repository) | {"mine.py": b"mine"}


def test_a_file_that_is_missing_from_the_build_is_named(repository, tmp_path, clean):
    folder = tmp_path / "incomplete"
    shutil.copytree(repository, folder)
    (folder / "handler.py").unlink()
    record = json.loads((folder / "build.json").read_text())
    record["sha256"] = files.digests(folder)
    (folder / "build.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"expected all files of a repository, got none of \['handler.py'\]"):
        push.check_folder(folder)


@pytest.mark.parametrize(
    ("commit", "message"),
    [
        (f"{COMMIT}-dirty", "expected a clean git tree, got uncommitted changes"),
        ("f" * 40, rf"expected a build of this version \(f+\), got one of {COMMIT}"),
    ],
)
def test_another_state_of_the_source_is_refused(repository, clean, monkeypatch, commit, message):
    monkeypatch.setattr(push, "source_commit", lambda: commit)
    with pytest.raises(ValueError, match=message):
        push.check_folder(repository)
    assert not clean


def test_a_failing_check_is_passed_on(repository, clean, monkeypatch):
    def fail(*_):
        raise ValueError("expected the scores of the source")

    monkeypatch.setattr(push, "verify", fail)
    with pytest.raises(ValueError, match="expected the scores of the source"):
        push.check_folder(repository)


def test_the_commit_of_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert files.source_commit() == __version__  # as it is installed
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "1"]):
        subprocess.run([*git, *command], check=True)
    commit = files.source_commit()
    assert len(commit) == 40
    (tmp_path / "file").write_text("2")
    assert files.source_commit() == f"{commit}-dirty"


def test_a_clone_whose_commit_git_cannot_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / ".git").mkdir()  # empty: git takes it for no repository
    with pytest.raises(
        ValueError, match=r"expected git to name the commit of this clone, got: .*not a git repository"
    ):
        files.source_commit()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"expected git to name the commit of this clone, got: .*No such file"):
        files.source_commit()
