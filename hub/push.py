"""`ideal push`: check a built folder and publish it as one pull request or one commit."""

import argparse
import glob
import hashlib
import json
from pathlib import Path

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from modeling_ideal import IdealImageProcessor, IdealModel, IdealReferences
from modeling_ideal.saving import shipped_files

from .card import check_card
from .files import CARD, DIRTY, ENDPOINT, HUB, RECORD, REFERENCES, REQUIRED, digests, read_record, source_commit
from .verify import verify


def run(arguments: argparse.Namespace) -> str:
    """Check a folder and publish it, or describe what would be done, and return the text to print."""
    folder = Path(arguments.folder)
    if arguments.tag and not arguments.commit:
        raise ValueError(
            "--tag: expected --commit with it, got a pull request; once it is merged, tag with `--commit`"
        )
    check_folder(folder)
    if arguments.dry_run:
        return describe(folder, arguments.repo, arguments.commit, arguments.tag, arguments.private)
    return publish(folder, arguments.repo, arguments.commit, arguments.tag, arguments.private)


def check_folder(folder: Path) -> None:
    """Raise ValueError unless a folder was built by `ideal build` from this version of the source, and loads."""
    record = read_record(folder)
    found = digests(folder)
    needed = REQUIRED | {path.name for path in shipped_files()}
    if missing := sorted(needed - {*found, RECORD}):
        raise ValueError(f"{folder}: expected all files of a repository, got none of {missing}")
    commit = source_commit()
    if commit.endswith(DIRTY):
        raise ValueError("expected a clean git tree, got uncommitted changes (see `git status`)")
    if record["commit"] != commit:
        raise ValueError(f"{folder}: expected a build of this version ({commit}), got one of {record['commit']}")
    sources = [*shipped_files(), *(HUB / name for name in ENDPOINT)]
    if stale := [path.name for path in sources if found[path.name] != hashlib.sha256(path.read_bytes()).hexdigest()]:
        raise ValueError(f"{folder}: expected the code of this version, got other code in {stale}; build it again")
    check_card((folder / CARD).read_text())
    model = IdealModel.from_pretrained(folder, dtype=torch.float32)
    _check_references(folder, [path for path in found if path.startswith(REFERENCES)], model)
    verify(folder, model, IdealImageProcessor.from_pretrained(folder))


def _check_references(folder: Path, paths: list[str], model: IdealModel) -> None:
    """Check that what was added to a build are references of its model and nothing else."""
    for path in paths:
        if not path.endswith(".safetensors"):
            raise ValueError(f"{folder}: expected .safetensors files in {REFERENCES}, got {path}")
        try:
            model.check_encoded(IdealReferences.load(folder / path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def describe(folder: Path, repo: str, commit: bool, tag: str | None, private: bool) -> str:
    """Describe what `publish` would do."""
    sizes = {path: (folder / path).stat().st_size for path in [*digests(folder), RECORD]}
    return "\n".join(
        [
            f"create {repo}, if it does not exist{' (private)' if private else ''}",
            *(f"  upload {path} ({size:,} bytes)" for path, size in sorted(sizes.items())),
            "  delete there what an earlier build has put and this one lacks",
            "all in one commit" if commit else "all in one pull request",
            *([f"tag it {tag}"] if tag else []),
        ]
    )


def publish(folder: Path, repo: str, commit: bool, tag: str | None, private: bool) -> str:
    """Upload a folder in one commit, which makes all of it visible or nothing.

    Large files are sent first and stay on the server, so that a second attempt does not send them again.
    """
    api = HfApi()
    try:
        if tag and tag in _tags(api, repo):
            raise ValueError(f"--tag: expected a new tag, got {tag}, which {repo} already has")
        api.create_repo(repo, private=private, exist_ok=True)
        version = json.loads((folder / RECORD).read_text())
        done = api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            commit_message=f"IDEAL {version['version']}, built from {version['commit'][:12]}",
            create_pr=not commit,
            delete_patterns=[glob.escape(path) for path in _earlier(api, repo) - digests(folder).keys()],
        )
        if tag:
            api.create_tag(repo, tag=tag, revision=done.oid)
    except HfHubHTTPError as error:
        raise OSError(f"{repo}: {error}\n{_advice(error)}") from error
    return f"{done.pr_url or done.commit_url}{f', tagged {tag}' if tag else ''}"


def _tags(api: HfApi, repo: str) -> set[str]:
    try:
        return {ref.name for ref in api.list_repo_refs(repo).tags}
    except RepositoryNotFoundError:
        return set()


def _earlier(api: HfApi, repo: str) -> set[str]:
    """The files that an earlier build has put into a repository."""
    if not api.file_exists(repo, RECORD):
        return set()
    record = json.loads(Path(api.hf_hub_download(repo, RECORD)).read_text())
    return {path for path in record["sha256"] if not path.endswith("/")}


def _advice(error: HfHubHTTPError) -> str:
    if error.response.status_code in (401, 403):
        return "Nothing was published: log in with a token that may write there (`hf auth login`, or HF_TOKEN)."
    return "The push is not complete: run the same command again; files that are on the server are not sent twice."
