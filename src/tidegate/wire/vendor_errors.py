"""Read what a vendor says went wrong, in any of the shapes in use, into one record fit to be shown.

The message is bounded, on one line, and has everything that looks like a credential masked.
"""

from __future__ import annotations

import re

import msgspec

from tidegate.wire import lenient

MAX_MESSAGE_CHARS = 500
MAX_CODE_CHARS = 100
_MAX_READ_CHARS = 8192
"""How much of a message is searched for credentials before it is cut to `MAX_MESSAGE_CHARS`."""

_CREDENTIALS = re.compile(
    r"(?P<scheme>\bbearer\s+)\S+"
    r"|\b(?:sk|pk|rk)-[A-Za-z0-9_*.\-]{3,}"
    r"|\bLTAI[A-Za-z0-9]{8,}"
    r"|\beyJ[A-Za-z0-9_\-]{6,}\.[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]*)?"
    r"|(?P<name>\b(?:api[_-]?key|apikey|access[_-]?token|authorization|secret|password)[\"']?\s*[=:]\s*[\"']?)"
    r"(?:(?:bearer|basic|token)\s+)?[^\s\"',;}]+",
    re.IGNORECASE,
)
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_STATUS_FLOOR, _STATUS_CEILING = 400, 599


class VendorError(msgspec.Struct, frozen=True):
    """One error in a vendor's own words. `words` are its codes and types in lower case, to match rules with."""

    message: str = ""
    code: str | None = None
    words: frozenset[str] = frozenset()
    param: str | None = None
    status: int | None = None
    """The HTTP status that it claims inside the body."""
    retryable: bool | None = None
    """OpenRouter's own verdict, `availability.retryable`."""
    retry_after_s: float | None = None


def clean_message(message: str) -> str:
    """Mask credentials, put on one line, and bound to 500 characters."""
    masked = _CREDENTIALS.sub(_mask, message[:_MAX_READ_CHARS])
    line = _UNPRINTABLE.sub(" ", masked).strip()
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"


def _mask(found: re.Match[str]) -> str:
    return (found["scheme"] or found["name"] or "") + "****"


def read_vendor_error(error: object) -> VendorError:
    """Read an error object (or a bare string). Unknown shapes give an empty message."""
    if isinstance(error, str):
        return VendorError(message=clean_message(error))
    if not isinstance(error, dict):
        return VendorError()
    metadata, availability = error.get("metadata"), error.get("availability")
    number = _status(error.get("code"))
    words = [
        lenient.text(error.get("code")),
        lenient.text(lenient.member(metadata, "error_type")),
        lenient.text(error.get("type")),
        lenient.text(error.get("error_type")),
        "moderation" if lenient.member(metadata, "flagged_input") or lenient.member(metadata, "reasons") else None,
    ]
    known = [_bounded(word) for word in words if word]
    retryable = lenient.member(availability, "retryable")
    return VendorError(
        message=clean_message(_message(error)),
        code=known[0] if known else (str(number) if number else None),
        words=frozenset(word.lower() for word in known),
        param=_bounded(lenient.text(error.get("param")) or "") or None,
        status=number or _status(error.get("status")),
        retryable=retryable if isinstance(retryable, bool) else None,
        retry_after_s=_seconds(lenient.member(availability, "retry_after")),
    )


def _message(error: dict[str, object]) -> str:
    for name in ("message", "msg", "detail", "error"):
        said = error.get(name)
        if isinstance(said, str) and said:
            return said
    detail = error.get("detail")  # FastAPI: a list of {"loc": …, "msg": …}
    first = detail[0] if isinstance(detail, list) and detail else None
    return lenient.text(lenient.member(first, "msg")) or ""


def _bounded(word: str) -> str:
    return clean_message(word[:MAX_CODE_CHARS])


def _status(code: object) -> int | None:
    number = int(code) if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3 else code  # noqa: PLR2004  an HTTP status has three digits
    if isinstance(number, int) and _STATUS_FLOOR <= number <= _STATUS_CEILING:
        return number
    return None


def _seconds(value: object) -> float | None:
    return float(min(value, 3600)) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
