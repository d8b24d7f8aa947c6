"""Headers both ways: what may pass, what limits say, and when to come back.

What passes is an allow-list in both directions. Everything unnamed stays on its side: credentials, cookies, forwarding and
internal headers of the client; cookies, account names, rate limits and server names of the upstream.

To the upstream go the headers that change what it does for this request. Not `x-request-id`, `traceparent` and `tracestate`: the caller
sets its own (cleaned, child span, trusted vendors only). Not `accept-encoding`: a compressed answer could not be read. Not `user-agent`
and `x-stainless-*`: they describe the client's machine. To the client go the headers that describe this answer.
"""

from __future__ import annotations

import calendar
import functools
import math
import re
from typing import Final

from tidegate.domain.header_lines import field_lines
from tidegate.domain.units import HeaderLines, Headers
from tidegate.errors import BudgetExceeded, LimitUnreachable, TidegateError, Unauthenticated
from tidegate.ports import LimitState, WindowState

MAX_RETRY_AFTER_S = 3600.0
"""A longer wish is taken as an hour: no request waits that long, and a wrong header must not idle an upstream for a day."""
_REMEMBERED_TEMPLATES: Final = 256
"""Of the lines about limits: one for each set of limits that callers are under, some 400 bytes each. Keys of one tier share theirs."""

_JSON = (b"content-type", b"application/json")
"""Whatever the client called its body (`curl -d` calls it a form): servers insist."""
_TO_UPSTREAM = frozenset(
    {
        b"accept",
        b"idempotency-key",
        b"openai-beta",
        b"x-dashscope-datainspection",
        b"x-dashscope-session-cache",
        b"x-openrouter-cache",
        b"x-openrouter-metadata",
        b"x-session-id",
    }
)
_TO_CLIENT = frozenset(
    {
        b"cache-control",
        b"content-type",
        b"openai-model",
        b"openai-processing-ms",
        b"openai-version",
        b"x-generation-id",
        b"x-openrouter-cache-age",
        b"x-openrouter-cache-status",
        b"x-openrouter-cache-ttl",
    }
)


def upstream_request_headers(client: Headers) -> Headers:
    """Select the client's headers that an upstream may see, the first of each name; and say that the body is JSON, as it is."""
    return (_JSON, *_allowed(client, _TO_UPSTREAM))


def client_response_headers(upstream: Headers) -> Headers:
    """Select the upstream's headers that a client may see; the first of each name."""
    return _allowed(upstream, _TO_CLIENT)


def _allowed(headers: Headers, names: frozenset[bytes]) -> Headers:
    kept = [field for field in headers if field[0] in names]
    if len(kept) > 1:
        first = dict(reversed(kept))
        if len(first) != len(kept):
            return tuple((name, first.pop(name)) for name, _ in kept if name in first)
    return tuple(kept)


# ── limits, as OpenAI and as the IETF draft (httpapi-ratelimit-headers-11) say them ───────────


def limit_lines(state: LimitState) -> HeaderLines:
    """Say where the caller stands: of requests and of tokens the limit with the least left, and every window by its rule's name."""
    requests, tokens, windows = state.requests, state.tokens, state.windows
    if requests is None and tokens is None:
        return b""
    rules = tuple([(window.rule, window.ceiling, window.span_s) for window in windows])
    values: list[object] = []
    if requests is not None:
        values += (requests.ceiling, _remaining(requests), _reset_value(requests.reset_s))
    if tokens is not None:
        values += (tokens.ceiling, _remaining(tokens), _reset_value(tokens.reset_s))
    for window in windows:
        values += (_remaining(window), math.ceil(window.reset_s))
    return _limit_template(rules, requests is not None, tokens is not None) % tuple(values)


@functools.lru_cache(maxsize=_REMEMBERED_TEMPLATES)
def _limit_template(rules: tuple[tuple[str, int, int], ...], has_requests: bool, has_tokens: bool) -> HeaderLines:  # noqa: FBT001  a cache's key
    """Give the lines for these rules, with places for what changes from answer to answer."""
    names = [name.encode().replace(b"%", b"%%") for name, _, _ in rules]
    policies = b", ".join([b'"%b";q=%d;w=%d' % (name, ceiling, span_s) for name, (_, ceiling, span_s) in zip(names, rules, strict=True)])
    standings = b", ".join([b'"%b";r=%%d;t=%%d' % name for name in names])
    shown = [resource for resource, is_shown in ((b"requests", has_requests), (b"tokens", has_tokens)) if is_shown]
    fields = [
        (b"x-ratelimit-%b-%b" % (what, resource), value)
        for resource in shown
        for what, value in ((b"limit", b"%d"), (b"remaining", b"%d"), (b"reset", b"%b"))
    ]
    return field_lines((*fields, (b"ratelimit-policy", policies), (b"ratelimit", standings)))


def _remaining(window: WindowState) -> int:
    """Keep debt to ourselves: a client understands 0, not a negative number."""
    return max(0, window.remaining)


def retry_after_value(seconds: float) -> bytes:
    """Write `Retry-After`: whole seconds, rounded up, at least 1."""
    return b"%d" % max(1, math.ceil(seconds))


def refusal_headers(error: TidegateError) -> Headers:
    """Give what goes with an error's body: when to come back, whether to at all, and how to authenticate (RFC 9110, 11.6.1)."""
    headers: Headers = (_JSON,)
    if error.retry_after_s is not None:
        headers = (*headers, (b"retry-after", retry_after_value(error.retry_after_s)))
    if isinstance(error, LimitUnreachable | BudgetExceeded):
        headers = (*headers, (b"x-should-retry", b"false"))
    if isinstance(error, Unauthenticated):
        headers = (*headers, (b"www-authenticate", b"Bearer"))
    return headers


# ── durations as Go prints them ─────────────────────────────────────────────────


_GO_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_GO_CHARS = 64


def go_duration(seconds: float) -> str:
    """Write a duration as Go does (`12ms`, `1s`, `6m0s`), rounded up to the millisecond so that nobody comes back early."""
    total_ms = max(0, math.ceil(seconds * 1000 - 1e-6))
    if 0 < total_ms < 1000:  # noqa: PLR2004  milliseconds in a second
        return f"{total_ms}ms"
    whole, ms = divmod(total_ms, 1000)
    minutes, second = divmod(whole, 60)
    tail = f"{second}.{ms:03d}".rstrip("0") + "s" if ms else f"{second}s"
    if minutes == 0:
        return tail
    hours, minute = divmod(minutes, 60)
    return f"{hours}h{minute}m{tail}" if hours else f"{minute}m{tail}"


def parse_go_duration(text: str) -> float | None:
    """Read a Go duration in seconds; None for anything else, and for negative ones."""
    if text == "0":
        return 0.0
    total, position = 0.0, 0
    while position < len(text) <= _MAX_GO_CHARS:
        part = _GO_PART.match(text, position)
        if part is None:
            return None
        total += float(part[1]) * _GO_UNITS[part[2]]
        position = part.end()
    return total if position else None


_WHOLE_SECONDS = tuple(go_duration(second).encode("ascii") for second in range(64))


def _reset_value(seconds: float) -> bytes:
    """Write a window's reset in whole seconds, rounded up: a window lasts about a minute, and this runs for every response."""
    whole = math.ceil(seconds)
    return _WHOLE_SECONDS[whole] if 0 <= whole < len(_WHOLE_SECONDS) else go_duration(whole).encode("ascii")


# ── when an upstream wants us back ───────────────────────────────────────────────


_POLICY = re.compile(rb'"[^"]{0,100}"\s*;\s*r=(\d{1,15})\s*;\s*t=(\d{1,9})')
_NUMBER = re.compile(rb"\d{1,15}(?:\.\d{0,9})?")
_HTTP_DATE = re.compile(rb"[A-Za-z]{3}, (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT")
_MONTHS = {month: number for number, month in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1)}
_EPOCH_S_FLOOR = 1e9
_EPOCH_MS_FLOOR = 1e12


def parse_retry_after(headers: Headers, now_epoch_s: float | None) -> float | None:
    """Read in how many seconds an upstream wants to be asked again, in 0..3600; None when it does not say.

    In order: `retry-after-ms`, `retry-after` (seconds or HTTP date), `x-ratelimit-reset-requests|-tokens` of whatever is not
    known to have something left, `x-ratelimit-reset` (OpenRouter's epoch, or seconds), the `t` of the IETF draft's `ratelimit`.
    Without `now_epoch_s`, dates are ignored.
    """
    fields = {name: value.strip() for name, value in reversed(headers)}
    wish = _number(fields.get(b"retry-after-ms"))
    wait = wish / 1000 if wish is not None else None
    if wait is None:
        wait = _retry_after(fields.get(b"retry-after"), now_epoch_s)
    if wait is None:
        wait = _exhausted_reset(fields)
    if wait is None:
        wait = _reset(fields.get(b"x-ratelimit-reset"), now_epoch_s)
    if wait is None:
        wait = _exhausted_policy(fields.get(b"ratelimit", b""))
    return None if wait is None else min(max(0.0, wait), MAX_RETRY_AFTER_S)


def _number(value: bytes | None) -> float | None:
    return float(value) if value is not None and _NUMBER.fullmatch(value) else None


def _retry_after(value: bytes | None, now_epoch_s: float | None) -> float | None:
    seconds = _number(value)
    if seconds is not None or value is None or now_epoch_s is None:
        return seconds
    date = _HTTP_DATE.fullmatch(value)
    if date is None or date[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(date[group]) for group in (1, 3, 4, 5, 6))
    if year == 0 or day == 0:
        return None
    return calendar.timegm((year, _MONTHS[date[2]], day, hour, minute, second)) - now_epoch_s


def _exhausted_reset(fields: dict[bytes, bytes]) -> float | None:
    waits: list[float] = []
    for what in (b"requests", b"tokens"):
        remaining = _number(fields.get(b"x-ratelimit-remaining-" + what))
        wait = parse_go_duration(fields.get(b"x-ratelimit-reset-" + what, b"").decode("utf-8", "replace"))
        if wait is not None and not remaining:
            waits.append(wait)
    return max(waits, default=None)


def _exhausted_policy(value: bytes) -> float | None:
    """Read the IETF draft's list of policies: the longest wait of those with nothing left."""
    waits = [float(policy[2]) for policy in _POLICY.finditer(value) if int(policy[1]) == 0]
    return max(waits, default=None)


def _reset(value: bytes | None, now_epoch_s: float | None) -> float | None:
    number = _number(value)
    if number is None:
        return parse_go_duration(value.decode("utf-8", "replace")) if value is not None else None
    if number < _EPOCH_S_FLOOR:
        return number
    if now_epoch_s is None:
        return None
    return (number / 1000 if number >= _EPOCH_MS_FLOOR else number) - now_epoch_s
