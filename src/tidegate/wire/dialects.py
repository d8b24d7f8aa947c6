"""How each kind of OpenAI-compatible server differs, as data, and what its errors mean.

Nothing else in Tidegate asks for a vendor's name: it asks the `Dialect`. Sources: the vendors' pages and code of 2026-08 to 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from tidegate.domain.record import ServerTimes
from tidegate.domain.request import Operation
from tidegate.domain.units import Headers
from tidegate.domain.upstream import UpstreamFailure
from tidegate.wire import lenient
from tidegate.wire.error_rules import DASHSCOPE_RULES, LLAMACPP_RULES, OPENROUTER_RULES, ErrorRule, judge
from tidegate.wire.headers import parse_retry_after
from tidegate.wire.vendor_errors import VendorError, read_vendor_error

_MAX_ERROR_BODY_BYTES = 256 * 1024
"""A real error is a few hundred bytes; anything larger is a page, and not decoded."""
_MAX_MEDIA_TYPE_CHARS = 60
_FIRST_ERROR_STATUS = 400
_MAX_DIGITS = 9


class Rename(msgspec.Struct, frozen=True):
    """The server knows `target` only: `source` is sent under that name, and wins where both are given."""

    operation: Operation
    source: str
    target: str


class Default(msgspec.Struct, frozen=True):
    """A member to add when the client gave neither it nor any of `unless`."""

    operation: Operation
    name: str
    value: bytes
    unless: frozenset[str] = frozenset()


class Dialect(msgspec.Struct, frozen=True):
    name: str
    usage: Literal["stream_options", "always"]
    """How a stream's usage is had: asked for with `stream_options.include_usage`, or it always comes."""
    request_id_header: bytes
    """Which response header carries the upstream's own id of the request."""
    first_byte_time_header: bytes | None = None
    """Which header of a stream says how many milliseconds the server took until its first output."""
    request_headers: Headers = ()
    """Sent with every request, unless the operator configured the same name."""
    renames: tuple[Rename, ...] = ()
    defaults: tuple[Default, ...] = ()
    error_rules: tuple[ErrorRule, ...] = ()
    health_path: str | None = None
    """From the server's root; None: such a server is asked for its list of models, under the base URL."""


_OPENROUTER = Dialect(
    name="openrouter",
    usage="always",
    request_id_header=b"x-generation-id",
    request_headers=((b"http-referer", b"http://localhost"), (b"x-openrouter-title", b"Tidegate")),
    error_rules=OPENROUTER_RULES,
)
_DASHSCOPE = Dialect(
    name="dashscope",
    usage="stream_options",
    request_id_header=b"x-request-id",
    first_byte_time_header=b"req-cost-time",
    renames=(Rename(Operation.CHAT, "max_completion_tokens", "max_tokens"),),
    # Thinking is on by default for qwen3.5 and later, slow, and refused on some models' non-streaming calls: never leave it open.
    defaults=(Default(Operation.CHAT, "enable_thinking", b"false", frozenset({"thinking_budget", "reasoning_effort", "reasoning"})),),
    error_rules=DASHSCOPE_RULES,
)
_VLLM = Dialect(
    name="vllm",
    usage="stream_options",
    request_id_header=b"x-request-id",
    health_path="/health",
)
_LLAMACPP = Dialect(
    name="llamacpp",
    usage="stream_options",
    request_id_header=b"x-request-id",
    renames=(Rename(Operation.CHAT, "max_completion_tokens", "max_tokens"),),
    error_rules=LLAMACPP_RULES,
    health_path="/health",
)
_OPENAI = Dialect(
    name="openai",
    usage="stream_options",
    request_id_header=b"x-request-id",
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {dialect.name: dialect for dialect in (_OPENROUTER, _DASHSCOPE, _VLLM, _LLAMACPP, _OPENAI)}
)


def classify(dialect: Dialect, status: int, headers: Headers, body: bytes, *, now_epoch_s: float | None = None) -> UpstreamFailure:
    """Say what an answer with a status of 400 or more means. `now_epoch_s` is needed only to read dates in its headers."""
    decoded = lenient.decode(body) if len(body) <= _MAX_ERROR_BODY_BYTES else lenient.MALFORMED
    if isinstance(decoded, dict):
        error = read_vendor_error(decoded.get("error") or decoded)
    else:
        error = VendorError(message=_page_message(status, headers, empty=not body.strip()))
    wish = parse_retry_after(headers, now_epoch_s)
    return _failure(dialect, error, status=status, retry_after_s=wish)


def first_byte_time(name: bytes, headers: Headers) -> ServerTimes | None:
    """Read the header of a stream that says how long the server took until its first output, waiting included; None without it."""
    value = next((value for each, value in headers if each == name), b"")
    return ServerTimes(prefill_s=lenient.milliseconds(int(value))) if value.isdigit() and len(value) <= _MAX_DIGITS else None


def classify_error_object(dialect: Dialect, error: object, status: int | None = None) -> UpstreamFailure:
    """Say what an error inside an answer or event means. `status` is the answer's own; below 400 the error's number counts."""
    vendor = read_vendor_error(error)
    is_verdict = status is not None and status >= _FIRST_ERROR_STATUS
    return _failure(dialect, vendor, status=status if is_verdict else vendor.status, retry_after_s=None)


def _failure(dialect: Dialect, error: VendorError, *, status: int | None, retry_after_s: float | None) -> UpstreamFailure:
    verdict = judge(dialect.error_rules, error, status)
    answered = f"status {status}" if status is not None else "an error"
    param = error.param or ("stream_options" if "stream_options" in error.message else None)
    return UpstreamFailure(
        scope=verdict.scope,
        retryable=verdict.retryable if error.retryable is None else error.retryable,
        message=error.message or f"The upstream answered with {answered} and gave no reason.",
        status=status,
        code=error.code,
        param=param,
        retry_after_s=retry_after_s if retry_after_s is not None else error.retry_after_s,
        rate_limited=verdict.rate_limited,
        credentials=verdict.credentials,
        content_filter=verdict.content_filter,
    )


def _page_message(status: int, headers: Headers, *, empty: bool) -> str:
    """Describe an error page without quoting it: it is somebody else's, and may be long or private."""
    if empty:
        return f"The upstream answered with status {status} and an empty body."
    media = next((value for name, value in headers if name == b"content-type"), b"").partition(b";")[0].strip()
    kind = media.decode("ascii", "replace")[:_MAX_MEDIA_TYPE_CHARS] if media else "something"
    return (
        f"The upstream answered with status {status} and a body that is not a JSON object ({kind}): most likely a proxy or load balancer "
        "in front of it answered. Check the upstream's base URL and that the server behind it is up."
    )
