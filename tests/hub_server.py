"""A small Hub on loopback: models, data sets and Spaces in memory, for tests of publishing and loading.

    with serve() as hub:
        result = hub.run(SCRIPT, "argument", home=tmp_path / "uploader")   # a fresh process that knows no other Hub
        assert result.returncode == 0, result.stderr
        assert hub.files("org/name")["config.json"] == ...
        assert not hub.seen("POST", "/commit/")

The clients read their endpoint while they are imported, so they run in a process of their own. Every proxy of
that process is this server too: a request to any other host ends here, in the log, and never leaves the machine.
Simpler than the real Hub: large files are answered directly instead of by a redirect to another host, and the
metadata of a README is not validated.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from .hub_content import READER, STRANGER, WRITER, Content, HubError, Reply

__all__ = ["READER", "STRANGER", "WRITER", "Hub", "Request", "serve"]

_LARGEST_BODY = 2**26
_WITHOUT_THE_PACKAGE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "modeling_ideal":
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Blocked())
"""


@dataclass(frozen=True)
class Request:
    """A request as the log keeps it; `path` is a whole address where another host was meant."""

    method: str
    path: str
    user: str | None
    status: int


class Hub(Content):
    """What the server knows, and what a test may ask and tell it."""

    def __init__(self, address: str, max_requests: int) -> None:
        super().__init__(address)
        self.max_requests = max_requests
        self.log: list[Request] = []
        self._failures: list[tuple[str, str, int]] = []
        self._lock = threading.Lock()

    def run(
        self,
        script: str,
        *arguments: object,
        home: Path,
        user: str | None = WRITER,
        package: bool = True,
        seconds: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in a fresh process whose Hub is this one, with its caches below `home`.

        `user` is the token it holds; without `package`, ours cannot be imported in it.
        """
        home.mkdir(parents=True, exist_ok=True)
        code = script if package else _WITHOUT_THE_PACKAGE + script
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=self.environment(home, user),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def environment(self, home: Path, user: str | None = WRITER) -> dict[str, str]:
        """The variables of such a process: nothing of the user's own set-up of the Hub is left."""
        dropped = re.compile(r"(hf|hugging_?face|transformers|datasets)_.*|.*_proxy", re.IGNORECASE)
        kept = {name: value for name, value in os.environ.items() if not dropped.fullmatch(name)}
        root = str(Path(__file__).resolve().parents[1])
        return {
            **kept,
            **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), self.address),
            "no_proxy": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH")])),
            "HF_ENDPOINT": self.address,
            "HF_HOME": str(home / "cache"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            **({"HF_TOKEN": user} if user else {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}),
        }

    def files(self, name: str, kind: str = "model", revision: str = "main") -> dict[str, bytes]:
        """The published files, without the `.gitattributes` of every repository; none without a repository."""
        repository = self.repositories.get((f"{kind}s", name))
        files = repository.commits[repository.resolve(revision)] if repository else {}
        return {path: file.content for path, file in files.items() if path != ".gitattributes"}

    def seen(self, method: str = ".*", path: str = "") -> list[Request]:
        """The logged requests of a method whose path contains a pattern."""
        return [one for one in self.log if re.fullmatch(method, one.method) and re.search(path, one.path)]

    def fail(self, method: str, path: str, status: int = 500, times: int = 1) -> None:
        """Answer the next requests of a method whose path contains a pattern with an error, and do nothing."""
        self._failures += [(method, path, status)] * times

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer a request and log it, one at a time."""
        user = headers.get("Authorization", "").removeprefix("Bearer ") or None
        with self._lock:
            try:
                self._refuse(method, target)
                reply = self.route(method, target, headers, body, user)
            except HubError as error:
                reply = error.reply
            self.log.append(Request(method, target.partition("?")[0], user, reply.status))
        return reply

    def _refuse(self, method: str, target: str) -> None:
        if len(self.log) >= self.max_requests:
            raise HubError(400, f"more than {self.max_requests} requests: a client that does not stop")
        if method == "CONNECT" or urlsplit(target).netloc:
            raise HubError(403, "another host")
        for failure in self._failures:
            if re.fullmatch(failure[0], method) and re.search(failure[1], target.partition("?")[0]):
                self._failures.remove(failure)
                raise HubError(failure[2], "the test asked for this failure")


class _Handler(BaseHTTPRequestHandler):
    """HTTP alone: a body in, a reply out, the connection kept."""

    protocol_version = "HTTP/1.1"
    timeout = 10  # of a silent client, so that no thread outlives it for long
    hub: Hub

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            reply = Reply({"error": "too large"}, 413)
        else:
            reply = self.hub.answer(self.command, self.path, self.headers, body)
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        kind = "application/octet-stream" if isinstance(reply.body, bytes) else "application/json"
        self.send_response(reply.status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes | None:
        """The whole body, also where it comes in chunks; None where it is too large."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            length = int(self.headers.get("Content-Length", 0))
            return self.rfile.read(length) if length <= _LARGEST_BODY else None
        body = b""
        while size := int(self.rfile.readline(), 16):
            if len(body) + size > _LARGEST_BODY:
                return None
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_CONNECT = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the standard library)
        """Say nothing: the hub keeps a log of its own."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away; tell of everything else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve(max_requests: int = 1000, seconds: float = 300) -> Iterator[Hub]:
    """A running Hub; it stops when the block ends, or by itself when the time is over."""
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    handler.hub = hub = Hub(f"http://127.0.0.1:{server.server_address[1]}", max_requests)

    def run() -> None:
        with server:  # closes the port, so that a client that is late is refused and need not wait
            server.serve_forever(poll_interval=0.05)

    thread = threading.Thread(target=run, daemon=True)
    end = threading.Timer(seconds, server.shutdown)
    end.daemon = True
    thread.start()
    end.start()
    try:
        yield hub
    finally:
        end.cancel()
        server.shutdown()
        thread.join()
