"""How one log line looks: logfmt for people and grep, JSON for collectors.

A line is always one line: control characters and quotes in a value are escaped, so that nothing a client sends can forge another entry.
What looks like a credential is masked, in what is logged and in what is recorded.
Long values are cut. Fields whose value is None are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from tidegate.domain.record import RequestRecord

MAX_VALUE_CHARS = 300
"""Enough for any id, model name or error text; keeps a line far below what a pipe takes at once."""

Value = str | int | float | bool | None
LineFormat = Callable[[float, str, str, Mapping[str, Value]], str]
"""(instant, level, event, fields) -> one line with its newline. Words may follow the event's name after a space."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:-]{1,300}")
"""Most values: nothing to cut, escape or quote."""
_NEVER_TWICE = frozenset({"request_id", "trace_id", "cause"})
_REMEMBERED = 1024  # models, tenants, keys: the busy ones of a second or so
_NEEDS_QUOTES = re.compile(r"""[\s"=\\]""")

_MASK = "****"
_SECRETS = (
    (re.compile(r"\btg-([a-z0-9]{8,12})-[0-9A-Za-z]{6,}"), rf"tg-\1-{_MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]{6,}"), rf"\1 {_MASK}"),
    (re.compile(r"\b(sk|pk|rk)-[0-9A-Za-z_-]{12,}"), rf"\1-{_MASK}"),
    (re.compile(r"\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]*)?"), _MASK),
    (re.compile(r"(https?://)[^\s/@]+@"), rf"\1{_MASK}@"),
)
"""Our keys, credentials of HTTP, the usual shape of providers' keys, JSON Web Tokens, and passwords in addresses."""
_CHOSEN_BY_OTHERS = ("request_id", "model", "cause", "finish_reason")
"""Fields of a record whose text comes from clients and upstreams."""
_SUSPECT = re.compile(r"[tspr][gk]-|eyJ|//|(?i:bearer|basic)")
"""Part of whatever a pattern above matches: tells most texts harmless in one search."""


class LogFormat(StrEnum):
    LOGFMT = "logfmt"
    JSON = "json"


def line_format(log_format: LogFormat) -> LineFormat:
    """Give what writes lines of this format; for one thread."""
    return json_line if log_format is LogFormat.JSON else LogfmtLines()


class LogfmtLines:
    """Writes logfmt, one line a call. Remembers how recurring texts look, and the second it is in: a line is written for every request."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._second = -1
        self._stamp = ""

    def __call__(self, at: float, level: str, event: str, fields: Mapping[str, Value]) -> str:
        known = self._known
        parts = [self._timestamp(at), level, event]
        for key, value in fields.items():
            if isinstance(value, str):
                shown = known.get(value)
                parts.append(f"{key}={shown if shown is not None else self._text(key, value)}")
            elif isinstance(value, bool):
                parts.append(f"{key}=true" if value else f"{key}=false")
            elif value is not None:
                parts.append(f"{key}={value}")
        return " ".join(parts) + "\n"

    def _text(self, key: str, value: str) -> str:
        text = value if _PLAIN.fullmatch(value) else _cut(value)
        shown = text if text and text.isprintable() and not _NEEDS_QUOTES.search(text) else _quoted(text)
        if key not in _NEVER_TWICE:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[value] = shown
        return shown

    def _timestamp(self, at: float) -> str:
        """Write the time as `timestamp` does, formatting each second once."""
        second = int(at)
        if second != self._second:
            self._second, self._stamp = second, timestamp(second)[:-4]
        return f"{self._stamp}{int((at - second) * 1000):03d}Z"


def json_line(at: float, level: str, event: str, fields: Mapping[str, Value]) -> str:
    name, _, message = event.partition(" ")
    entry: dict[str, Value] = {"at": timestamp(at), "level": level, "event": name}
    if message:
        entry["message"] = message
    entry.update((key, _cut(value) if isinstance(value, str) else value) for key, value in fields.items() if value is not None)
    return msgspec.json.encode(entry).decode() + "\n"


def masked(text: str) -> str:
    """Hide what looks like a credential."""
    if _SUSPECT.search(text) is None:
        return text
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def without_credentials(record: RequestRecord) -> RequestRecord:
    """Mask credentials in what others chose, and bound it: someone will paste a key where the model's name belongs."""
    changed = {name: masked(text) for name in _CHOSEN_BY_OTHERS if (text := getattr(record, name))}
    reason = changed.get("finish_reason", "")
    if len(reason) > MAX_VALUE_CHARS:
        changed["finish_reason"] = _cut(reason)
    if all(text is getattr(record, name) for name, text in changed.items()):
        return record
    return msgspec.structs.replace(record, **changed)


def timestamp(at: float) -> str:
    """Write seconds since the epoch as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def request_fields(record: RequestRecord) -> dict[str, Value]:
    """Choose what the log says about a request: no prompt, no answer, no credential."""
    usage = record.usage
    return {
        "request_id": record.request_id,
        "operation": record.operation,
        "outcome": record.outcome.value,
        "status": record.status,
        "error": record.error_code,
        "cause": record.cause,
        "model": record.model or None,
        "upstream": record.upstream or None,
        "tenant": record.tenant or None,
        "key": record.key_id or None,
        "stream": record.stream,
        "duration_ms": round(record.duration_s * 1000, 1),
        "ttft_ms": None if record.ttft_s is None else round(record.ttft_s * 1000, 1),
        "upstream_ms": round(record.upstream_s * 1000, 1) if record.attempts else None,
        "attempts": len(record.attempts) if len(record.attempts) > 1 else None,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens or None,
        "completion_tokens": usage.completion_tokens,
        "evidence": record.evidence.value,
        "finish_reason": record.finish_reason,
        "degraded": record.degraded,
        "trace_id": record.trace_id or None,
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'


def _cut(text: str) -> str:
    """Shorten, and replace lone surrogates, which no encoder accepts."""
    text = text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"
    return text if text.isprintable() else text.encode("utf-8", "backslashreplace").decode()
