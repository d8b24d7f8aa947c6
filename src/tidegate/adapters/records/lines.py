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
from functools import lru_cache
from typing import Final

import msgspec

from tidegate.domain.record import RequestRecord
from tidegate.wire.masking import Masker

MAX_VALUE_CHARS: Final = 300
"""Enough for any id, model name or error text; keeps a line far below what a pipe takes at once."""

REQUEST_FINISHED: Final = "request.finished"

Value = str | int | float | bool | None
LineFormat = Callable[[float, str, str, Mapping[str, Value]], str]
"""(instant, level, event, fields) -> one line with its newline. Words may follow the event's name after a space."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:-]{1,300}")
"""Most values: nothing to cut, escape or quote."""
_NEVER_TWICE = frozenset({"request_id", "trace_id", "cause"})
_REMEMBERED: Final = 1024  # models, tenants, keys: the busy ones of a second or so
_OUR_LONGEST_ID: Final = 32
_SURELY: Final = 1e-6
"""From half a tenth: so far from it, a number that was multiplied by ten is rounded as its exact value would be."""
_LARGEST_SURE: Final = 1e8  # tenths; there the error of a product is 1e-8
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
_MASKER: Final = Masker()
_SUSPECT: Final = re.compile(r"[tspr][gk]-|eyJ|//|(?i:bearer|basic)")
"""Part of whatever a pattern above matches: tells most texts harmless in one search."""


class LogFormat(StrEnum):
    LOGFMT = "logfmt"
    JSON = "json"


def line_format(log_format: LogFormat) -> LineFormat:
    """Give what writes lines of this format; for one thread."""
    return json_line if log_format is LogFormat.JSON else LogfmtLines()


def request_format(log_format: LogFormat) -> Callable[[RequestRecord], str]:
    """Give what writes the line of a finished request in this format; for one thread."""
    return json_request_line if log_format is LogFormat.JSON else LogfmtLines().request


class LogfmtLines:
    """Writes logfmt, one line a call. Remembers how recurring texts look, and the second it is in: a line is written for every request."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._callers: dict[tuple[str, str, str, str], str] = {}
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

    def request(self, record: RequestRecord) -> str:
        """Write the line of a finished request: what `__call__` makes of its `request_fields`, in one step where it is an ordinary one."""
        if record.error_code is not None or record.cause is not None or record.degraded is not None or len(record.attempts) != 1:
            return self(record.started_at + record.duration_s, "info", REQUEST_FINISHED, request_fields(record))
        usage, reason, ttft_s, duration_s = record.usage, record.finish_reason, record.ttft_s, record.duration_s
        cached_tokens, color_name, trace_id = usage.cached_tokens, record.color, record.trace_id
        ttft = "" if ttft_s is None else f" ttft_ms={_milliseconds(ttft_s)}"
        cached = f" cached_tokens={cached_tokens}" if cached_tokens else ""
        finish = f" finish_reason={self._known.get(reason) or self._text('finish_reason', reason)}" if reason is not None else ""
        color = f" color={self._text('color', color_name)}" if color_name else ""
        trace = f" trace_id={self._unique('trace_id', trace_id)}" if trace_id else ""
        at, request_id = self._timestamp(record.started_at + duration_s), self._unique("request_id", record.request_id)
        outcome: str = record.outcome  # declared: of texts and whole numbers without a format, compiled code joins a line in one step
        evidence: str = record.evidence
        stream = "true" if record.stream else "false"
        return (
            f"{at} info request.finished request_id={request_id} operation={record.operation} outcome={outcome} status={record.status}"
            f"{self._caller(record)}{color} stream={stream} duration_ms={_milliseconds(duration_s)}{ttft}"
            f" upstream_ms={_milliseconds(record.upstream_s)} prompt_tokens={usage.prompt_tokens}{cached}"
            f" completion_tokens={usage.completion_tokens} evidence={evidence}{finish}{trace}\n"
        )

    def _unique(self, key: str, value: str) -> str:
        """Show an id; those that we make need no second look."""
        plain = (value.isalnum() or value.isidentifier()) and value.isascii() and len(value) <= _OUR_LONGEST_ID
        return value if plain else self._text(key, value)

    def _caller(self, record: RequestRecord) -> str:
        """Show what many requests share: whose it was, and what was asked for."""
        shared = (record.model, record.upstream, record.tenant, record.key_id)
        shown = self._callers.get(shared)
        if shown is None:
            if len(self._callers) >= _REMEMBERED:
                self._callers.clear()
            names = zip(("model", "upstream", "tenant", "key"), shared, strict=True)
            shown = self._callers[shared] = "".join([f" {name}={self._text(name, value)}" for name, value in names if value])
        return shown

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
        milliseconds = str(1000 + int((at - second) * 1000))
        return f"{self._stamp}{milliseconds[1:]}Z"


def _milliseconds(seconds: float) -> str:
    """Write with one decimal, as `%.1f` does, at a third of its cost where no tie is near."""
    milliseconds = seconds * 1000
    tenths = milliseconds * 10
    if not 0.0 <= tenths < _LARGEST_SURE:
        return f"{milliseconds:.1f}"
    whole = int(tenths)
    part = tenths - whole - 0.5
    if -_SURELY < part < _SURELY:
        return f"{milliseconds:.1f}"
    if part > 0:
        whole += 1
    return f"{whole // 10}.{whole % 10}"


def json_line(at: float, level: str, event: str, fields: Mapping[str, Value]) -> str:
    name, _, message = event.partition(" ")
    entry: dict[str, Value] = {"at": timestamp(at), "level": level, "event": name}
    if message:
        entry["message"] = message
    entry.update((key, _cut(value) if isinstance(value, str) else value) for key, value in fields.items() if value is not None)
    return msgspec.json.encode(entry).decode() + "\n"


def json_request_line(record: RequestRecord) -> str:
    return json_line(record.started_at + record.duration_s, "info", REQUEST_FINISHED, request_fields(record))


def masked(text: str) -> str:
    """Hide what looks like a credential."""
    if text.isidentifier() or _SUSPECT.search(text) is None:  # every pattern needs more than letters, digits and underscores
        return text
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


@lru_cache(_REMEMBERED)
def _masked_name(text: str) -> str:
    """Do the same for short texts of which a busy second has few."""
    return masked(text)


def without_credentials(record: RequestRecord, mask_cause: Callable[[str], str] = _MASKER.mask) -> RequestRecord:
    """Mask credentials in what others chose, and bound it: someone will paste a key where the model's name belongs.

    A cause is masked further: an upstream may have repeated what it was sent.
    """
    request_id, model, cause, reason = record.request_id, record.model, record.cause, record.finish_reason
    clean_id, clean_model = masked(request_id), _masked_name(model)
    clean_cause = mask_cause(masked(cause)) if cause else cause
    clean_reason = _masked_name(reason) if reason else reason
    if clean_reason is not None and len(clean_reason) > MAX_VALUE_CHARS:
        clean_reason = _cut(clean_reason)
    if record.feature or record.color or record.business_context:
        record = _with_clean_words(record)
    if clean_id is request_id and clean_model == model and clean_cause is cause and clean_reason == reason:
        return record
    return msgspec.structs.replace(record, request_id=clean_id, model=clean_model, cause=clean_cause, finish_reason=clean_reason)


def _with_clean_words(record: RequestRecord) -> RequestRecord:
    feature, color, context = masked(record.feature), masked(record.color), masked(record.business_context)
    is_clean = feature is record.feature and color is record.color and context is record.business_context
    return record if is_clean else msgspec.structs.replace(record, feature=feature, color=color, business_context=context)


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
        "color": record.color or None,
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
