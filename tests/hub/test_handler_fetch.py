"""Fetching for the endpoint: public addresses alone, by the address that was checked, within bytes and seconds."""

import socket
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep

import pytest

from hub import handler_fetch
from hub.handler_fetch import MOST_REDIRECTS, fetch, is_public

MOST_BYTES = 100_000


class Pages(BaseHTTPRequestHandler):
    """Answers by path."""

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        self.server.hosts.append(self.headers["Host"])
        kind, _, rest = self.path[1:].partition("/")
        if kind == "to":
            self.answer(302, b"", Location=rest)
        elif kind == "missing":
            self.answer(404, b"")
        elif kind == "claims":
            self.answer(200, b"", **{"Content-Length": str(10**12)})
        elif kind == "endless":
            self.answer(200, b"", chunked=True)
            self.repeat(b"400\r\n" + bytes(1024) + b"\r\n", pause=0)
        elif kind == "drip":
            self.answer(200, b"", chunked=True)
            self.repeat(b"1\r\nx\r\n", pause=0.05)
        elif kind == "drip-header":
            self.repeat(b"HTTP/1.1 200 OK\r\nX-Slow: ", pause=0, times=1)
            self.repeat(b"x", pause=0.05)
        else:
            self.answer(200, b"content")

    def answer(self, status, body, chunked=False, **headers):
        self.send_response(status)
        length = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}
        for name, value in {**length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def repeat(self, part, pause, times=10**6):
        for _ in range(times):
            try:
                self.wfile.write(part)
                self.wfile.flush()
            except OSError:
                return
            sleep(pause)


@contextmanager
def serving(context=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads, server.hosts = True, []
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def world(server, monkeypatch):
    """Names of a pretended internet: every public one leads to the server. Returns what was resolved."""
    addresses = {"inside.example": ["10.0.0.7"], "both.example": ["93.184.215.14", "127.0.0.1"], "gone.example": []}
    asked = []
    port = server.server_address[1]

    def resolve(host, wanted):
        asked.append(host)
        found = addresses.get(host, ["93.184.215.14"])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, wanted)) for address in found]

    def connect(self, address):
        assert address[0] == "93.184.215.14", "only what was checked"
        return real_connect(self, ("127.0.0.1", port))

    real_connect = socket.socket.connect
    monkeypatch.setattr(handler_fetch, "resolve", resolve)
    monkeypatch.setattr(handler_fetch.socket, "socket", type("Socket", (socket.socket,), {"connect": connect}))
    return asked


def get(address, seconds=20.0):
    return fetch(address, "inputs", MOST_BYTES, monotonic() + seconds)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),  # noqa: S104
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.215.14", True),
        ("::127.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::93.184.215.14", True),
        ("64:ff9b:1::10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("2001::1", False),
    ],
)
def test_what_is_public(address, public):
    assert is_public(address) == public


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_loopback_by_any_name_is_refused(server, monkeypatch, host):
    port = server.server_address[1]
    monkeypatch.setattr(handler_fetch, "PORTS", (port,))
    with pytest.raises(ValueError, match=r"inputs: expected .*public address, got"):
        get(f"http://{host}:{port}/picture")
    assert server.hosts == []


def test_a_public_address_is_fetched_and_told_its_name(world, server):
    assert get("http://example.org/picture?size=1") == b"content"
    assert server.hosts == ["example.org"]


def test_a_redirect_is_followed_and_checked(world, server):
    assert get("http://example.org/to/http://other.example/picture") == b"content"
    assert get("http://example.org/to//picture") == b"content"
    assert world == ["example.org", "other.example", "example.org", "example.org"]
    for target in ("http://inside.example/secret", "http://both.example/", "http://gone.example/"):
        with pytest.raises(ValueError, match=r"expected a public address, got '\w+\.example', which is not"):
            get(f"http://example.org/to/{target}")
    for target in ("file:///etc/passwd", "ftp://example.org/a", "gopher://example.org/"):
        with pytest.raises(ValueError, match=r"expected an http\(s\) address"):
            get(f"http://example.org/to/{target}")
    with pytest.raises(ValueError, match=r"ports \(80, 443\), got 6379"):
        get("http://example.org/to/http://example.org:6379/")


def test_redirects_end(world, server):
    with pytest.raises(ValueError, match="expected at most 3 redirects, got more"):
        get("http://example.org/" + "to/" * 20)
    assert len(server.hosts) == MOST_REDIRECTS + 1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://user:secret@example.org/", "expected an address without a user name"),
        ("http://example.org:22/", r"ports \(80, 443\), got 22"),
        ("http://example.org:99999/", r"expected an http\(s\) address"),
        ("http://[::1/", r"expected an http\(s\) address"),
        ("http:///picture", r"expected an http\(s\) address"),
        ("http://example.org/" + "a" * 2000, "at most 2000 characters"),
        ("http://example.org/a b\r\nX: y", "expected an address that answers with a picture, got InvalidURL"),
        ("http://example.org/missing", "got status 404"),
        ("http://example.org/claims", "expected at most 100,000 bytes, got more"),
        ("http://example.org/endless", "expected at most 100,000 bytes, got more"),
    ],
)
def test_what_is_refused(world, address, message):
    with pytest.raises(ValueError, match=f"inputs: .*{message}") as raised:
        get(address)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("kind", ["drip", "drip-header"])
def test_a_server_that_drips_is_left(world, kind):
    started = monotonic()
    with pytest.raises(ValueError, match=r"inputs: .*got no end in time"):
        get(f"http://example.org/{kind}", seconds=0.5)
    assert monotonic() - started < 15, "one of 50 million bytes, 0.05 s each"


def test_a_resolver_that_hangs_is_left(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(handler_fetch, "resolve", lambda *_: release.wait(30))
    with pytest.raises(ValueError, match="got no end in time"):
        get("http://example.org/", seconds=0.2)
    release.set()


def test_proxies_of_the_environment_are_ignored(world, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert get("http://example.org/picture") == b"content"


def test_a_certificate_must_belong_to_the_name(world, monkeypatch):
    """The server speaks no TLS, which is the most that can be shown without a certificate of one's own."""
    named = []
    real = ssl.SSLContext.wrap_socket

    def wrap(self, *arguments, server_hostname, **options):
        named.append((server_hostname, self.check_hostname, self.verify_mode))
        return real(self, *arguments, server_hostname=server_hostname, **options)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap)
    with pytest.raises(ValueError, match="expected an address that answers with a picture, got SSLError"):
        get("https://example.org/picture")
    assert named == [("example.org", True, ssl.CERT_REQUIRED)]
