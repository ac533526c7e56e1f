"""`ideal push`: check a built folder and publish it as one pull request or one commit."""

import argparse
import json
from pathlib import Path

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from modeling_ideal import IdealImageProcessor, IdealModel
from modeling_ideal.saving import shipped_files

from .card import check_card
from .files import CARD, RECORD, REQUIRED, digests, source_commit
from .verify import verify

REFERENCES = "references/"  # encoded reference sets for the endpoint may be added after the build


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
    if not (folder / RECORD).is_file():
        raise ValueError(f"{folder}: expected a folder made by `ideal build`, got one without {RECORD}")
    record = json.loads((folder / RECORD).read_text())
    found = digests(folder)
    built = {path: digest for path, digest in found.items() if not path.startswith(REFERENCES)}
    differing = sorted(path for path, _ in built.items() ^ record["sha256"].items())
    if differing:
        raise ValueError(f"{folder}: expected the files as they were built, got others: {sorted(set(differing))}")
    needed = REQUIRED | {path.name for path in shipped_files()}
    if missing := sorted(needed - {*built, RECORD}):
        raise ValueError(f"{folder}: expected all files of a repository, got none of {missing}")
    commit = source_commit()
    if commit.endswith("-dirty"):
        raise ValueError("expected a clean git tree, got uncommitted changes (see `git status`)")
    if record["commit"] != commit:
        raise ValueError(f"{folder}: expected a build of this version ({commit}), got one of {record['commit']}")
    check_card((folder / CARD).read_text())
    model = IdealModel.from_pretrained(folder, dtype=torch.float32)
    verify(folder, model, IdealImageProcessor.from_pretrained(folder))


def describe(folder: Path, repo: str, commit: bool, tag: str | None, private: bool) -> str:
    """Describe what `publish` would do."""
    sizes = {path: (folder / path).stat().st_size for path in [*digests(folder), RECORD]}
    return "\n".join(
        [
            f"create {repo}, if it does not exist{' (private)' if private else ''}",
            *(f"  upload {path} ({size:,} bytes)" for path, size in sorted(sizes.items())),
            "  delete Python files there that are not among these",
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
            delete_patterns="*.py",
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


def _advice(error: HfHubHTTPError) -> str:
    if error.response.status_code in (401, 403):
        return "Nothing was published: log in with a token that may write there (`hf auth login`, or HF_TOKEN)."
    return "The push is not complete: run the same command again; files that are on the server are not sent twice."
