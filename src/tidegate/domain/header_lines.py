"""Encodes header fields of our own making, in both directions: none may end its line early, or say what only the connection may say.

A violation is a fault of whoever built the headers: an assertion, not a refusal.
"""

from __future__ import annotations

from tidegate.domain.units import HeaderLines, Headers

_NONE: frozenset[bytes] = frozenset()


def field_lines(headers: Headers, owned: frozenset[bytes] = _NONE) -> HeaderLines:
    """Give the fields, each with the end of its line; none has a name that is `owned` by the connection."""
    if not headers:
        return b""
    pieces: list[bytes] = []
    for name, value in headers:
        if name in owned:
            raise AssertionError(f"{name!r} is among the header fields, and it is for the connection to say; leave it out")
        pieces.append(name)
        pieces.append(b": ")
        pieces.append(value)
        pieces.append(b"\r\n")
    block = b"".join(pieces)
    if len(block.splitlines()) != len(headers) or block.find(b"\0") >= 0:
        raise AssertionError("a header field has a CR, LF or NUL in it; look at what builds these headers")
    return block
