"""What the small Hub of the tests keeps and answers: repositories in memory, and one method a route."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WRITER, READER, STRANGER = "hf_writer", "hf_reader", "hf_stranger"
LARGE = 2**20
_KINDS = r"/api/(?P<kind>models|datasets|spaces)/(?P<name>[^/]+/[^/]+)"
_PAGES = r"/(?P<kind>datasets/|spaces/|)(?P<name>[^/]+/[^/]+)"
_ROUTES = [
    ("GET", "/api/whoami-v2", "whoami"),
    ("POST", "/api/validate-yaml", "validate_yaml"),
    ("POST", "/api/repos/create", "create"),
    ("GET", rf"{_KINDS}(?:/revision/(?P<revision>[^/]+))?", "info"),
    ("GET", rf"{_KINDS}/refs", "list_refs"),
    ("GET", rf"{_KINDS}/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?", "tree"),
    ("POST", rf"{_KINDS}/paths-info/(?P<revision>[^/]+)", "paths_info"),
    ("POST", rf"{_KINDS}/preupload/(?P<revision>[^/]+)", "preupload"),
    ("POST", rf"{_KINDS}/commit/(?P<revision>[^/]+)", "commit"),
    ("POST", rf"{_KINDS}/branch/(?P<branch>[^/]+)", "branch"),
    ("POST", rf"{_KINDS}/tag/(?P<revision>[^/]+)", "tag"),
    ("POST", rf"{_PAGES}\.git/info/lfs/objects/batch", "lfs_batch"),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", "lfs_put"),
    ("POST", "/lfs/verify", "lfs_verify"),
    ("GET", rf"{_PAGES}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
]
# The upload itself carries no token: at the Hub its address is signed.
_WITHOUT_RIGHTS = {"whoami", "validate_yaml", "info", "list_refs", "tree", "paths_info", "resolve", "lfs_put"}


@dataclass(frozen=True)
class File:
    """A file of a commit; a large one is known by its sha256 and stands in git as a pointer."""

    content: bytes
    large: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def oid(self) -> str:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        blob = pointer.encode() if self.large else self.content
        return hashlib.sha1(b"blob %d\0" % len(blob) + blob, usedforsecurity=False).hexdigest()

    def entry(self, path: str) -> dict[str, Any]:
        """As a listing shows it."""
        size = len(self.content)
        lfs = {"lfs": {"oid": self.sha256, "size": size, "pointerSize": 130}} if self.large else {}
        return {"type": "file", "oid": self.oid, "size": size, "path": path, **lfs}


@dataclass
class Repository:
    """Commits, each with all its files, and the branches, tags and pull requests that point to them."""

    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def resolve(self, revision: str) -> str:
        """The commit of a branch, tag, pull request or commit."""
        for name in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
            if name in self.refs:
                return self.refs[name]
        if revision not in self.commits:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return revision

    def add(self, ref: str, files: dict[str, File]) -> str:
        """Publish a commit; this is the only place where anything becomes visible."""
        parts = [ref, len(self.commits), sorted((path, file.oid) for path, file in files.items())]
        commit = hashlib.sha1(repr(parts).encode(), usedforsecurity=False).hexdigest()
        self.commits[commit] = files
        self.refs[ref] = commit
        return commit


@dataclass(frozen=True)
class Reply:
    body: Any = b""  # bytes as they are, anything else as JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class HubError(Exception):
    """An answer in the Hub's words for errors."""

    def __init__(self, status: int, message: str, code: str = "", **headers: str) -> None:
        named = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **headers}
        self.reply = Reply({"error": message}, status, named)


class Content:
    """Repositories of models, data sets and Spaces."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}  # large files by sha256, published or not

    def route(self, method: str, target: str, headers: Mapping[str, str], body: bytes, user: str | None) -> Reply:
        """Answer a request that came with a token."""
        address = urlsplit(target)
        for verb, pattern, action in _ROUTES:
            match = re.fullmatch(pattern, address.path)
            if match and verb == {"HEAD": "GET"}.get(method, method):
                _check_rights(user, action)
                given = {name: value and unquote(value) for name, value in match.groupdict().items()}
                return getattr(self, f"_{action}")(headers=headers, query=parse_qs(address.query), body=body, **given)
        raise HubError(404, f"no such route: {method} {address.path}")

    def _repository(self, kind: str, name: str) -> Repository:
        key = (kind.strip("/") or "models", name)
        if key not in self.repositories:
            raise HubError(404, "Repository not found", "RepoNotFound")
        return self.repositories[key]

    def _whoami(self, headers, **_):
        if "Authorization" not in headers:
            raise HubError(401, "Invalid username or password.")
        return Reply({"type": "user", "name": "tester", "orgs": [{"name": "org"}], "auth": {"type": "access_token"}})

    def _validate_yaml(self, **_):
        return Reply({"errors": [], "warnings": []})

    def _create(self, body, **_):
        wanted = json.loads(body)
        kind = f"{wanted.get('type', 'model')}s"
        name = f"{wanted.get('organization') or 'tester'}/{wanted['name']}"
        url = f"{self.address}/{'' if kind == 'models' else kind + '/'}{name}"
        if (kind, name) in self.repositories:
            return Reply({"error": "You already created this repo", "url": url}, 409)
        repository = self.repositories[kind, name] = Repository()
        repository.add("refs/heads/main", {".gitattributes": File(b"*.safetensors filter=lfs\n")})
        return Reply({"url": url, "name": name})

    def _info(self, kind, name, revision, **_):
        repository = self._repository(kind, name)
        commit = repository.resolve(revision or "main")
        files = repository.commits[commit]
        readme = files["README.md"].content.decode() if "README.md" in files else ""
        header = readme.split("---\n")[1] if readme.startswith("---\n") else ""
        card = dict(re.findall(r"^(pipeline_tag|library_name): *(\S+)$", header, re.MULTILINE))
        siblings = [{"rfilename": path} for path in sorted(files)]
        return Reply({"id": name, "sha": commit, "private": False, "tags": [], "siblings": siblings, **card})

    def _list_refs(self, kind, name, **_):
        listed: dict[str, list] = {"branches": [], "tags": [], "pullRequests": [], "converts": []}
        groups = {"refs/heads/": "branches", "refs/tags/": "tags", "refs/pr/": "pullRequests"}
        for ref, commit in self._repository(kind, name).refs.items():
            prefix = next(prefix for prefix in groups if ref.startswith(prefix))
            listed[groups[prefix]].append({"name": ref.removeprefix(prefix), "ref": ref, "targetCommit": commit})
        return Reply(listed)

    def _tree(self, kind, name, revision, path, query, **_):
        repository = self._repository(kind, name)
        entries = _entries(repository.commits[repository.resolve(revision)])
        below = f"{path}/" if path else ""
        if below and path not in entries:
            raise HubError(404, f"{path} does not exist on {revision}", "EntryNotFound")
        deep = query.get("recursive", [""])[0].lower() in ("true", "1")
        found = [place for place in entries if place.startswith(below) and (deep or "/" not in place[len(below) :])]
        return Reply([entries[place] for place in found])

    def _paths_info(self, kind, name, revision, headers, body, **_):
        repository = self._repository(kind, name)
        entries = _entries(repository.commits[repository.resolve(revision)])
        is_json = "json" in headers.get("Content-Type", "")
        wanted = json.loads(body)["paths"] if is_json else parse_qs(body.decode()).get("paths", [])
        return Reply([entries[path] for path in wanted if path in entries])

    def _preupload(self, kind, name, revision, body, **_):
        repository = self._repository(kind, name)
        files = repository.commits[repository.resolve(revision)]
        answers = []
        for wanted in json.loads(body)["files"]:
            large = wanted["size"] > LARGE or b"\0" in base64.b64decode(wanted["sample"])
            there = files.get(wanted["path"])
            answer = {"path": wanted["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
            known = {"oid": there.sha256 if there.large else there.oid} if there else {}
            answers.append({**answer, **known})
        return Reply({"files": answers})

    def _lfs_batch(self, kind, name, body, **_):
        self._repository(kind, name)
        actions = {"verify": {"href": f"{self.address}/lfs/verify"}}
        answers = []
        for wanted in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.address}/lfs/{wanted['oid']}"}}
            missing = wanted["oid"] not in self.objects
            answers.append({**wanted, **({"actions": {**upload, **actions}} if missing else {})})
        return Reply({"transfer": "basic", "objects": answers})

    def _lfs_put(self, oid, body, **_):
        if hashlib.sha256(body).hexdigest() != oid:
            raise HubError(400, "the content does not have this sha256")
        self.objects[oid] = body
        return Reply()

    def _lfs_verify(self, body, **_):
        wanted = json.loads(body)
        if len(self.objects.get(wanted["oid"], b"")) != wanted["size"]:
            raise HubError(404, "this content was not uploaded")
        return Reply({})

    def _commit(self, kind, name, revision, query, body, **_):
        repository = self._repository(kind, name)
        parent = repository.resolve(revision)
        files = dict(repository.commits[parent])
        for line in body.decode().splitlines():
            operation = json.loads(line)
            if operation["key"] == "header":
                if operation["value"].get("parentCommit", parent) != parent:
                    raise HubError(412, "A commit has happened since. Please refresh and try again.")
            else:
                self._apply(files, operation["key"], operation["value"])
        # Nothing was error: only now is anything published, and then all of it.
        number = 1 + sum(ref.startswith("refs/pr/") for ref in repository.refs)
        is_request = query.get("create_pr") == ["1"]
        ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
        commit = repository.add(f"refs/pr/{number}" if is_request else ref, files)
        page = f"{self.address}/{'' if kind == 'models' else kind + '/'}{name}"
        request = {"pullRequestUrl": f"{page}/discussions/{number}"} if is_request else {}
        return Reply({"success": True, "commitOid": commit, "commitUrl": f"{page}/commit/{commit}", **request})

    def _apply(self, files: dict[str, File], key: str, value: dict[str, Any]) -> None:
        path = value["path"].rstrip("/")
        if key == "file":
            files[path] = File(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            if value["oid"] not in self.objects:
                raise HubError(400, f"{path} refers to a large file that was never uploaded")
            files[path] = File(self.objects[value["oid"]], large=True)
        else:
            doomed = [one for one in files if one == path or (key == "deletedFolder" and one.startswith(f"{path}/"))]
            if not doomed:
                raise HubError(404, "A file with this name doesn't exist", "EntryNotFound")
            for one in doomed:
                del files[one]

    def _branch(self, kind, name, branch, body, **_):
        start = json.loads(body or b"{}").get("startingPoint", "main")
        return self._new_ref(kind, name, f"refs/heads/{branch}", start)

    def _tag(self, kind, name, revision, body, **_):
        return self._new_ref(kind, name, f"refs/tags/{json.loads(body)['tag']}", revision)

    def _new_ref(self, kind: str, name: str, ref: str, revision: str) -> Reply:
        repository = self._repository(kind, name)
        if ref in repository.refs:
            raise HubError(409, f"{ref} exists already")
        repository.refs[ref] = repository.resolve(revision)
        return Reply({})

    def _resolve(self, kind, name, revision, path, headers, **_):
        repository = self._repository(kind, name)
        commit = repository.resolve(revision)
        file = repository.commits[commit].get(path)
        if file is None:
            raise HubError(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": commit})
        size = len(file.content)
        answered = {"X-Repo-Commit": commit, "ETag": f'"{file.oid}"', "Accept-Ranges": "bytes"}
        if file.large:
            answered |= {"X-Linked-Size": str(size), "X-Linked-ETag": f'"{file.sha256}"', "ETag": f'"{file.sha256}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range", ""))
        if wanted is None:
            return Reply(file.content, headers=answered)
        first, last = int(wanted[1]), min(int(wanted[2] or size), size - 1)
        if first >= size:
            raise HubError(416, "Range not satisfiable", **{"Content-Range": f"bytes */{size}"})
        answered["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Reply(file.content[first : last + 1], 206, answered)


def _check_rights(user: str | None, action: str) -> None:
    if user not in (None, WRITER, READER):
        raise HubError(401, "Invalid credentials in Authorization header")
    if action not in _WITHOUT_RIGHTS and user != WRITER:
        raise HubError(403 if user else 401, "You don't have the rights to write here")


def _entries(files: dict[str, File]) -> dict[str, dict[str, Any]]:
    """What a listing shows: files and the folders they are in."""
    entries = {path: file.entry(path) for path, file in files.items()}
    for path in files:
        for folder in map(str, PurePosixPath(path).parents[:-1]):
            oid = hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()
            entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
    return dict(sorted(entries.items()))
