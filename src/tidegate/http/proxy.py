"""HTTP proxies between Tidegate and an upstream: which one the environment asks for, and the CONNECT exchange that opens a tunnel.

Plain `http` upstreams are reached by the absolute form of the request target (RFC 9112, 3.2.2), `https` ones through a CONNECT tunnel
(RFC 9110, 9.3.6). User name and password of the proxy's URL become `Proxy-Authorization: Basic` and appear in no message and no `repr`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import cast
from urllib.parse import unquote_to_bytes

import msgspec

from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError
from tidegate.http.origin import Origin, host_and_port, split_url

MAX_CONNECT_HEAD_BYTES = 16_384
"""A proxy's answer to CONNECT is a status line and a handful of headers; more is not an answer."""

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?:[ \r])")


class ProxyServer(msgspec.Struct, frozen=True):
    """A proxy; `authorization` is the value of `Proxy-Authorization`."""

    host: str
    port: int
    authorization: Secret | None = None

    @property
    def label(self) -> str:
        """Give the name used in messages, without credentials."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> ProxyServer:
        """Read a proxy's URL; a bare `host:port` means `http://`, as curl reads it."""
        parts = split_url(url if "://" in url else f"http://{url}", what="the proxy's URL", userinfo=True)
        if parts.scheme != "http":
            raise ConfigurationError(
                "the proxy's URL begins with https://; only http:// proxies are supported (they still carry https upstreams)"
            )
        userinfo, separator, _ = parts.netloc.rpartition("@")
        host, port = host_and_port(parts, what="the proxy's URL")
        return cls(host=host, port=port, authorization=_basic(userinfo) if separator else None)


def _basic(userinfo: str) -> Secret:
    name, _, password = userinfo.partition(":")
    return Secret("Basic " + b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode("ascii"))


def without_userinfo(url: str) -> str:
    """Give a proxy's URL as it may be shown."""
    scheme, separator, rest = url.rpartition("://")
    userinfo, at, host = rest.rpartition("@")
    return f"{scheme}{separator}****@{host}" if at and userinfo else url


# ── the environment ───────────────────────────────────────────────────────────


def proxy_from_environment(base_url: str, environ: Mapping[str, str]) -> str | None:
    """Give the proxy that the environment asks for, or None.

    `https_proxy` or `http_proxy` by the scheme, then `all_proxy`; the lower-case name wins, as in curl. Upper-case `HTTP_PROXY` does not
    count where `REQUEST_METHOD` is set: in a CGI program it is a client's header (CVE-2016-5385). `no_proxy` lists exceptions, and
    `localhost` and loopback addresses are always one: to a proxy they would mean the proxy itself.
    """
    origin = Origin.parse(base_url)
    if is_exempt(origin.host, origin.port, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    names = [f"{origin.scheme}_proxy", f"{origin.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ and "HTTP_PROXY" in names:
        names.remove("HTTP_PROXY")
    for name in names:
        if value := environ.get(name, "").strip():
            return value
    return None


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Say whether `no_proxy` (names and their subdomains, IP addresses, networks, each with an optional port, or `*`) covers a host."""
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback):
        return True
    return any(_entry_covers(entry, host, port, address) for entry in re.split(r"[,\s]+", no_proxy.lower()) if entry)


_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _entry_covers(entry: str, host: str, port: int, address: _IpAddress | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _network_holds(entry, address)
    name, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
        return False
    if address is not None:
        return _address(name) == address
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    """Take `:port` off an entry; a bare IPv6 address has colons but no port."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        digits = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, digits = entry.partition(":")
    else:
        return entry, None
    return (name, int(digits)) if digits.isascii() and digits.isdigit() else (name, None)


def _address(text: str) -> _IpAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network_holds(entry: str, address: _IpAddress) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


# ── the tunnel ────────────────────────────────────────────────────────────────


class TunnelOpening(asyncio.Protocol):
    """Speak CONNECT on a fresh connection; `opened` becomes None when the tunnel stands, else a clause that says why not."""

    __slots__ = ("_head", "_request", "_transport", "opened")

    def __init__(self, origin: Origin, proxy: ProxyServer) -> None:
        authorization = f"proxy-authorization: {proxy.authorization.reveal()}\r\n" if proxy.authorization else ""
        self._request = f"CONNECT {origin.authority} HTTP/1.1\r\nhost: {origin.authority}\r\n{authorization}\r\n".encode("ascii")
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.opened.done():
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= MAX_CONNECT_HEAD_BYTES:
            return
        self.opened.set_result(self._verdict(end))

    def eof_received(self) -> None:
        self._end("closed the connection instead of answering CONNECT")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(
            f"broke the connection instead of answering CONNECT ({exc})" if exc else "closed the connection instead of answering CONNECT"
        )

    def _end(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_result(reason)

    def _verdict(self, end: int) -> str | None:
        status_line = _STATUS_LINE.match(self._head)
        if end < 0 or status_line is None:
            return f"answered CONNECT with no HTTP/1.1 head of at most {MAX_CONNECT_HEAD_BYTES} bytes; check that it is an HTTP proxy"
        status = int(status_line[1])
        if status == 407:  # noqa: PLR2004  RFC 9110, 15.5.8
            return "answered CONNECT with 407; put a valid user name and password into the proxy's URL (http://name:password@host:port)"
        if not 200 <= status <= 299:  # noqa: PLR2004  RFC 9110, 9.3.6
            return f"answered CONNECT with {status}; check that it allows this host and port"
        if end + 4 != len(self._head):
            return "sent bytes into the tunnel before it was used; it is not a clean HTTP proxy"
        return None
