"""What a client says about its business in `X-Business-Context`: `feature=code_completion; user_tier=vip`, or a JSON object.

And the colour it gives its traffic in `X-Tidegate-Color`, so that tests can be told from customers.

Read tolerantly, since it only describes: what cannot be read is left out, and never an error. Bounded, since it comes from clients: at
most 16 members of 64 characters, none of them invisible. It stays with the gateway and is never sent to an upstream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidegate.domain.request import is_color
from tidegate.wire import lenient

MAX_MEMBERS = 16
MAX_CHARS = 64
"""Of a name and of a value; longer ones are cut."""
_MAX_BYTES = 4_096  # more than 16 members of a sensible size take; what comes after is not looked at
_MAX_SESSION_CHARS = 128
_BETWEEN = re.compile("[;,]")  # a comma stands where a client or proxy joined two such headers


def parse_business_context(value: bytes) -> dict[str, str]:
    """Read the header's value; the first of equal names wins, names are lower case. Empty for what is neither form."""
    text = value[:_MAX_BYTES].decode("utf-8", "replace").strip()
    if text.startswith("{"):
        members = lenient.decode(text.encode("utf-8"))
        return _bounded((str(name), _word(member)) for name, member in members.items()) if isinstance(members, dict) else {}
    return _bounded((name, value.strip().strip('"')) for name, _, value in (part.partition("=") for part in _BETWEEN.split(text)))


def feature_of(value: bytes | None) -> str:
    """Give the feature that a request's header names; empty without one."""
    return parse_business_context(value).get("feature", "") if value is not None else ""


def bounded_context(value: bytes) -> str:
    """Give as much of the header as is ever read of it, for whoever reads it later."""
    return value[:_MAX_BYTES].decode("utf-8", "replace")


def color_of(value: bytes | None) -> str:
    """Give the colour that the header `x-tidegate-color` names; empty without one, and for what is none.

    It is taken whole or not at all: a part of it might be another colour, one that is not billed.
    """
    if value is None:
        return ""
    color = value.decode("latin-1")
    return color if is_color(color) else ""


def session_of(value: bytes | None) -> str:
    """Give the session that the header `x-session-id` names, bounded and without invisible characters; empty without one."""
    return _clean(value[:_MAX_BYTES].decode("utf-8", "replace"))[:_MAX_SESSION_CHARS] if value is not None else ""


def _bounded(members: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in members:
        key = _clean(name).lower()[:MAX_CHARS]
        word = _clean(value or "")[:MAX_CHARS]
        if key and word:
            kept.setdefault(key, word)
        if len(kept) == MAX_MEMBERS:
            break
    return kept


def _word(value: object) -> str | None:
    """Write a JSON value as one word; None for what has parts of its own."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _clean(text: str) -> str:
    """Drop what cannot be seen (controls, direction marks, lone surrogates): it would deceive whoever reads a record."""
    return (text if text.isprintable() else "".join(filter(str.isprintable, text))).strip()
