"""Where an upstream is: one checked base URL, taken apart once so that no request has to.

Invariants: the scheme is `http` or `https`, the host is a name or an IP literal in ASCII, there is no user name or password, query or
fragment, and the path prefix neither ends with `/` nor holds a byte that could end a request line.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

import msgspec

from tidegate.errors import ConfigurationError

DEFAULT_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "write it like http://10.0.0.5:8000/v1"
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PRINTABLE = re.compile(r"[\x21-\x7e]*")
_PREFIX = re.compile(r"(?:/[\x21\x24-\x3b\x3d\x40-\x7e]*)?")


class Origin(msgspec.Struct, frozen=True):
    """A parsed base URL. `host` is lower case and without the brackets of an IPv6 literal."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """Give `host:port`, IPv6 in brackets; the port always written."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_field(self) -> str:
        """Give the value of the `host` header: the port only where it is not the scheme's own (RFC 9110, 7.2)."""
        if self.port == DEFAULT_PORTS[self.scheme]:
            return f"[{self.host}]" if ":" in self.host else self.host
        return self.authority

    @property
    def label(self) -> str:
        """Give the name used in messages: `https://host:port`."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, base_url: str) -> Origin:
        """Take a base URL apart, or raise `ConfigurationError` saying what to write instead."""
        parts = split_url(base_url, what="the upstream's base URL")
        shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
        if parts.query or parts.fragment or "?" in base_url or "#" in base_url:
            raise ConfigurationError(f"the upstream's base URL {shown} has a query or fragment; end it after the path and {_EXAMPLE}")
        prefix = parts.path.rstrip("/")
        if not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                f"the upstream's base URL {shown!r} has a character in its path that a URL cannot carry; percent-encode it"
            )
        host, port = host_and_port(parts, what="the upstream's base URL")
        return cls(scheme=parts.scheme, host=host, port=port, prefix=prefix)


def split_url(url: str, *, what: str, userinfo: bool = False) -> SplitResult:
    """Split a URL of scheme http or https; messages never repeat a URL that may hold a password."""
    if not _PRINTABLE.fullmatch(url):
        raise ConfigurationError(
            f"{what} has a space, a control character or a letter outside ASCII (write such host names in their xn-- form)"
        )
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise ConfigurationError(f"{what} is not a URL ({problem}); {_EXAMPLE}") from None
    if "@" in parts.netloc and not userinfo:
        raise ConfigurationError(f"{what} holds a user name or password; remove the part before the @ and set api_key or a header instead")
    if parts.scheme not in DEFAULT_PORTS or not parts.netloc:
        raise ConfigurationError(f"{what} has the scheme {parts.scheme!r}, not http or https; {_EXAMPLE}")
    return parts


def host_and_port(parts: SplitResult, *, what: str) -> tuple[str, int]:
    """Check the host and give it with its port, the scheme's own where none is written."""
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"{what} has a port that is not a number from 1 to 65535; {_EXAMPLE}") from None
    host = parts.hostname or ""
    literal = is_ip_literal(host)
    if not literal and (":" in host or not _HOST.fullmatch(host)):
        raise ConfigurationError(f"{what} has the host {host!r}, which is neither a name nor an IP address; {_EXAMPLE}")
    if port == 0:
        raise ConfigurationError(f"{what} has port 0, which cannot be connected to; write the port the server listens on")
    return host, DEFAULT_PORTS[parts.scheme] if port is None else port


def is_ip_literal(host: str) -> bool:
    """Say whether a host is an IPv4 or IPv6 address (without brackets, without a zone)."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host
