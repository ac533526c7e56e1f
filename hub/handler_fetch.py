"""Fetch pictures from public http(s) addresses for the endpoint's handler, within limits of bytes and seconds.

Whoever sends a request chooses the address, so the server must not become a way into its own network. Every host,
after each redirect too, is resolved first, all of its addresses must be public, and the connection goes to one of
these very addresses: a name that resolves to something else a moment later changes nothing.
"""

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Timer
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

SCHEMES = ("http://", "https://")
PORTS = (80, 443)
MOST_REDIRECTS = 3
MOST_CHARACTERS = 2000  # of an address
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "Connection": "close", "User-Agent": "ideal"}
PART = 64 * 1024  # bytes to read at a time
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_resolvers = ThreadPoolExecutor(4, thread_name_prefix="resolve")  # a name server must not hold up a request either


def fetch(address: str, name: str, most_bytes: int, deadline: float) -> bytes:
    """Fetch the content of an address; ValueError if it is not public, too large, too slow or not there.

    Args:
        address: an http or https address.
        name: what to call it in error messages.
        most_bytes: the largest number of bytes to accept.
        deadline: the value of `time.monotonic` when the fetching must be over.
    """
    try:
        for _ in range(MOST_REDIRECTS + 1):
            with _get(address, deadline) as response:
                if response.status not in REDIRECTS:
                    return _read(response, most_bytes)
                address = urljoin(address, response.headers.get("Location", ""))
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        reason = "no end in time" if monotonic() >= deadline else type(error).__name__
        raise ValueError(f"{name}: expected an address that answers with a picture, got {reason}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    raise ValueError(f"{name}: expected at most {MOST_REDIRECTS} redirects, got more")


def is_public(address: str) -> bool:
    """Whether an IP address is a public one, also within IPv6 forms of an IPv4 address."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed in NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved)


def resolve(host: str, port: int) -> list[tuple]:
    """The addresses of a host, as `socket.getaddrinfo` gives them."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _split(address: str) -> tuple[SplitResult, str, int]:
    """The parts of an address, its host and its port."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:  # whose message may repeat the address
        raise ValueError(f"expected an http(s) address, got {address[:40]!r}") from error
    if not address.lower().startswith(SCHEMES) or len(address) > MOST_CHARACTERS or not parts.hostname:
        raise ValueError(f"expected an http(s) address of at most {MOST_CHARACTERS} characters, got {address[:40]!r}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("expected an address without a user name and a password, got one with them")
    if port not in PORTS:
        raise ValueError(f"expected an address with one of the ports {PORTS}, got {port}")
    return parts, parts.hostname, port


def _public_addresses(host: str, port: int, deadline: float) -> list[tuple]:
    found = _resolvers.submit(resolve, host, port).result(_left(deadline))
    if not found or not all(is_public(entry[4][0]) for entry in found):
        raise ValueError(f"expected a public address, got {host[:40]!r}, which is not")
    return found


@contextmanager
def _get(address: str, deadline: float) -> Iterator[http.client.HTTPResponse]:
    """Send the request to a checked address. The connection ends at the deadline, however slowly the server drips."""
    parts, host, port = _split(address)
    connection = _Connection(host, port, parts.scheme == "https", _public_addresses(host, port, deadline), deadline)
    timer = Timer(_left(deadline), connection.abort)
    timer.daemon = True
    timer.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers=HEADERS)
        yield connection.getresponse()
        _left(deadline)  # an end that the timer made is no end of the content
    finally:
        timer.cancel()
        connection.close()


def _read(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    if response.status != 200:
        raise ValueError(f"expected an address that answers with a picture, got status {response.status}")
    content = bytearray()
    while len(content) <= most_bytes and (response.length or 0) <= most_bytes:
        part = response.read1(PART)
        if not part:
            return bytes(content)
        content += part
    raise ValueError(f"expected at most {most_bytes:,} bytes, got more")


class _Connection(http.client.HTTPConnection):
    """A connection to the first of some checked addresses that accepts one; the name is for `Host` and TLS alone."""

    def __init__(self, host: str, port: int, secure: bool, addresses: list[tuple], deadline: float) -> None:
        super().__init__(host, port)
        self.default_port = 443 if secure else 80  # `Host` names any other
        self.secure, self.addresses, self.deadline = secure, addresses, deadline
        self.open: Any = None  # `sock` is forgotten as soon as the headers have come

    def connect(self) -> None:
        """Connect, and with https check that the certificate belongs to the name."""
        self.sock = self.open = self._first_that_accepts()
        if self.secure:
            # The handshake begins when `abort` can see the socket.
            self.sock = self.open = ssl.create_default_context().wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.open.do_handshake()

    def abort(self) -> None:
        """End the connection from another thread."""
        if self.open is not None:
            with suppress(OSError):  # if it has ended already
                socket.socket.shutdown(self.open, socket.SHUT_RDWR)  # of TCP; TLS must not take part

    def _first_that_accepts(self) -> Any:
        failure: OSError = OSError("no address")
        for family, kind, protocol, _, address in self.addresses:
            one = socket.socket(family, kind, protocol)
            try:
                one.settimeout(_left(self.deadline))
                one.connect(address)
                return one
            except OSError as error:
                one.close()
                failure = error
        raise failure
