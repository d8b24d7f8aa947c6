"""What may stand in a name, a header and an address of the configuration."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_URL = re.compile(r"[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9._])?")
_URL_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def is_name(text: str) -> bool:
    """Tell whether a text can be a metric label and part of a replica's id."""
    return _NAME.fullmatch(text) is not None


def is_header_name(text: str) -> bool:
    """Tell whether a text is a field name (RFC 9110, section 5.1)."""
    return _HEADER_NAME.fullmatch(text) is not None


def is_header_value(text: str) -> bool:
    """Tell whether a text can be sent as a field value: no line breaks, no control characters, Latin-1 only."""
    return _HEADER_VALUE.fullmatch(text) is not None


def split_url(text: str) -> SplitResult | str:
    """Take an http or https URL apart, or say what is wrong with it; never repeats the text, which may hold a password."""
    if not _URL.fullmatch(text):
        return "has a space, a control character or a letter outside ASCII"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "has a port or host that cannot be read"
    host = parts.hostname or ""
    faults = (
        (parts.scheme not in {"http", "https"}, "does not begin with http:// or https://"),
        ("@" in parts.netloc, "holds a user name or password"),
        (not host, "names no host"),
        (not (is_ip_address(host) or _HOST.fullmatch(host)), "has a host that is neither a name nor an IP address"),
        (port == 0, "names port 0"),
        (not _URL_PATH.fullmatch(parts.path), "has a character in its path that must be percent-encoded"),
    )
    return next((fault for found, fault in faults if found), parts)


def is_ip_address(host: str) -> bool:
    """Tell whether a host is an IPv4 or IPv6 address, without brackets or zone."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_private(host: str) -> bool:
    """Tell whether an address is on this machine or a private network; a name without a dot, or under a private suffix, counts as one."""
    try:
        return ip_address(host).is_private
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith((".local", ".internal", ".lan", ".svc", ".localhost", ".home.arpa"))
