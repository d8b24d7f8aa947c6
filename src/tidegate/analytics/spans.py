"""One record of a request as spans: the gateway's own, one for each attempt, and what the model server said of its work within those.

Pure, and the same record always gives the same spans with the same ids, so that what is sent twice is stored once. Invariants: every span
lies within its parent; an attempt has the id that its upstream was told in `traceparent`; no text of a prompt or answer is in a record, so
none is in a span.

The model server's clock is its own: how long it waited, read and wrote is what it said, where that stands in time is inferred. Reading ends
with the first output where that was seen, else waiting begins with the connection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.analytics.tail_sampling import KeptFor, is_error
from tidegate.domain.record import AttemptRecord, RequestRecord, billed_attempts
from tidegate.domain.request import Operation
from tidegate.domain.usage import Usage
from tidegate.wire.business_context import parse_business_context
from tidegate.wire.trace_context import attempt_span_id

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]


class Name(StrEnum):
    """Every name that a span's attributes and events have. Those not of ours are OpenTelemetry's (GenAI, HTTP, error, user)."""

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    STREAM = "gen_ai.request.stream"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
    STATUS_CODE = "http.response.status_code"
    RESEND_COUNT = "http.request.resend_count"
    ERROR_TYPE = "error.type"
    USER = "user.id"

    REQUEST_ID = "tidegate.request_id"
    OUTCOME = "tidegate.outcome"
    KEPT_FOR = "tidegate.kept_for"
    KEY = "tidegate.key_id"
    TENANT = "tidegate.tenant"
    TIER = "tidegate.tier"
    FEATURE = "tidegate.feature"
    COLOR = "tidegate.color"
    ROUTE = "tidegate.route"
    RULE = "tidegate.rule"
    UPSTREAM = "tidegate.upstream"
    REPLICA = "tidegate.replica"
    RESULT = "tidegate.result"
    STEP = "tidegate.step"
    UPSTREAM_REQUEST_ID = "tidegate.upstream_request_id"
    DEGRADED = "tidegate.degraded"
    CONFIDENCE = "tidegate.confidence"
    COST = "tidegate.cost_micro"
    PRICE_VERSION = "tidegate.price_version"
    EVIDENCE = "tidegate.evidence"
    RESERVED_TOKENS = "tidegate.reserved_tokens"
    CLIENT_RETRY = "tidegate.client_retry"
    RESUMED = "tidegate.resumed"
    BUSINESS = "tidegate.business."
    """Before the names that the client chose itself."""
    COMMITTED = "tidegate.committed"
    """Event: the answer begins; nothing can be retried any more."""


OPERATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {Operation.CHAT: "chat", Operation.COMPLETION: "text_completion", Operation.EMBEDDING: "embeddings"}
)
"""GenAI's names of what a model does; the other operations ask none."""


class Kind(StrEnum):
    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


class SpanEvent(msgspec.Struct, frozen=True):
    name: str
    at: float
    attributes: Attributes = {}


class Span(msgspec.Struct, frozen=True):
    """Instants are seconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the first of a trace."""
    name: str
    kind: Kind
    began_at: float
    ended_at: float
    attributes: Attributes = {}
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """Why it failed; None: it did not, or not through its own side."""
    is_parent_remote: bool = False


def spans_of(record: RequestRecord, kept_for: KeptFor) -> tuple[Span, ...]:
    """Give the spans of a request, parents first; none of a record that names no span, as those of paths that are not served."""
    if not record.trace_id or not record.span_id:
        return ()
    ended_at = record.started_at + record.duration_s
    spans = [_request_span(record, kept_for, ended_at)]
    used = {attempt.attempt: usage for attempt, usage, _ in billed_attempts(record)}
    for attempt in record.attempts:
        span = _attempt_span(record, attempt, used.get(attempt.attempt), ended_at)
        spans += [span, *_server_spans(span, attempt)]
    return tuple(spans)


def _request_span(record: RequestRecord, kept_for: KeptFor, ended_at: float) -> Span:
    operation = OPERATIONS.get(record.operation, record.operation)
    attributes = _without_empty(
        {
            Name.OPERATION: OPERATIONS.get(record.operation, ""),
            Name.REQUEST_MODEL: record.model,
            Name.STREAM: record.stream,
            Name.FINISH_REASONS: (record.finish_reason,) if record.finish_reason else (),
            Name.TIME_TO_FIRST_CHUNK: record.ttft_s or 0.0,
            **_usage(record.usage),
            Name.STATUS_CODE: record.status,
            Name.ERROR_TYPE: record.error_code or "",
            Name.USER: record.user,
            Name.REQUEST_ID: record.request_id,
            Name.OUTCOME: str(record.outcome),
            Name.KEPT_FOR: str(kept_for),
            Name.KEY: record.key_id,
            Name.TENANT: record.tenant,
            Name.TIER: record.tier,
            Name.FEATURE: record.feature,
            Name.COLOR: record.color,
            Name.ROUTE: record.route,
            Name.RULE: record.rule,
            Name.UPSTREAM: record.upstream,
            Name.DEGRADED: record.degraded or "",
            Name.CONFIDENCE: record.confidence,
            Name.COST: record.cost_micro,
            Name.PRICE_VERSION: record.price_version,
            Name.EVIDENCE: str(record.evidence) if record.usage.total_tokens else "",
            Name.RESERVED_TOKENS: record.reserved_tokens,
            Name.CLIENT_RETRY: record.client_retry,
            Name.RESUMED: record.resumed,
            **_business(record),
        }
    )
    return Span(
        trace_id=record.trace_id,
        span_id=record.span_id,
        parent_id=record.parent_span_id,
        name=f"{operation} {record.route}".rstrip(),
        kind=Kind.SERVER,
        began_at=record.started_at,
        ended_at=ended_at,
        attributes=attributes,
        events=tuple(_events(record, ended_at)),
        error=(record.cause or str(record.outcome)) if is_error(record.outcome) else None,
        is_parent_remote=True,
    )


def _events(record: RequestRecord, ended_at: float) -> Iterator[SpanEvent]:
    """Tell of each attempt that was not simply the first, of the answer's beginning, and of what it was less than asked for."""
    before = ""
    for attempt in record.attempts:
        if attempt.step:
            steps: Attributes = {Name.STEP: attempt.step, Name.REPLICA: attempt.replica, Name.RESULT: before}
            yield SpanEvent(Name.STEP, min(record.started_at + attempt.began_s, ended_at), steps)
        before = attempt.result
    last = record.attempts[-1] if record.attempts else None
    committed_at: float | None = None
    if record.ttft_s is not None:
        committed_at = record.started_at + record.ttft_s
    elif last is not None and last.result == "ok":
        committed_at = record.started_at + last.began_s + last.duration_s
    if committed_at is not None:
        yield SpanEvent(Name.COMMITTED, min(committed_at, ended_at))
    if record.degraded:
        yield SpanEvent(Name.DEGRADED, ended_at if committed_at is None else min(committed_at, ended_at), {Name.DEGRADED: record.degraded})


def _attempt_span(record: RequestRecord, attempt: AttemptRecord, usage: Usage | None, ended_at: float) -> Span:
    operation = OPERATIONS.get(record.operation, record.operation)
    began_at = min(record.started_at + attempt.began_s, ended_at)
    failed = attempt.result not in {"ok", "cancelled"}
    attributes = _without_empty(
        {
            Name.OPERATION: OPERATIONS.get(record.operation, ""),
            Name.PROVIDER: attempt.upstream,
            Name.REQUEST_MODEL: attempt.model,
            Name.STREAM: record.stream,
            Name.TIME_TO_FIRST_CHUNK: attempt.first_token_s or 0.0,
            **(_usage(usage) if usage is not None else {}),
            Name.STATUS_CODE: attempt.status or 0,
            Name.RESEND_COUNT: attempt.attempt - 1,
            Name.ERROR_TYPE: attempt.result if failed else "",
            Name.REPLICA: attempt.replica,
            Name.RESULT: attempt.result,
            Name.STEP: attempt.step,
            Name.UPSTREAM_REQUEST_ID: attempt.upstream_request_id or "",
            Name.COST: attempt.cost_micro,
        }
    )
    return Span(
        trace_id=record.trace_id,
        span_id=attempt_span_id(record.span_id, attempt.attempt),
        parent_id=record.span_id,
        name=f"{operation} {attempt.model}".rstrip(),
        kind=Kind.CLIENT,
        began_at=began_at,
        ended_at=min(began_at + attempt.duration_s, ended_at),
        attributes=attributes,
        error=attempt.result if failed else None,
    )


def _server_spans(parent: Span, attempt: AttemptRecord) -> Iterator[Span]:
    """Place what the model server said of its work, one after the other, within the attempt."""
    phases = (("queue", attempt.queue_s), ("prefill", attempt.prefill_s), ("decode", attempt.decode_s))
    at = parent.began_at + (attempt.connect_s or 0.0)
    if attempt.first_token_s is not None:
        at = parent.began_at + attempt.first_token_s - (attempt.queue_s or 0.0) - (attempt.prefill_s or 0.0)
    for name, length_s in phases:
        if length_s is None:
            continue
        began_at = min(max(at, parent.began_at), parent.ended_at)
        at = min(max(at + length_s, began_at), parent.ended_at)
        yield Span(
            trace_id=parent.trace_id,
            span_id=hashlib.sha256(f"{parent.trace_id}-{parent.span_id}-{name}".encode()).hexdigest()[:16],
            parent_id=parent.span_id,
            name=name,
            kind=Kind.INTERNAL,
            began_at=began_at,
            ended_at=at,
            attributes={Name.REPLICA: attempt.replica},
        )


def _business(record: RequestRecord) -> Attributes:
    context = parse_business_context(record.business_context.encode("utf-8", "replace"))
    return {Name.BUSINESS + name: value for name, value in context.items()}


def _usage(usage: Usage) -> Attributes:
    return {
        Name.INPUT_TOKENS: usage.prompt_tokens,
        Name.OUTPUT_TOKENS: usage.completion_tokens,
        Name.CACHED_TOKENS: usage.cached_tokens,
        Name.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        Name.REASONING_TOKENS: usage.reasoning_tokens,
    }


def _without_empty(attributes: Attributes) -> Attributes:
    """Leave out what says nothing: no text, nought, and what is not so."""
    return {str(name): value for name, value in attributes.items() if value}
