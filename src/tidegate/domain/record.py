"""The one record a request leaves behind. Metrics, logs, audit and billing read only this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.domain.outcome import Outcome
from tidegate.domain.usage import Evidence, Usage

NOTHING_USED: Final = Usage()
"""The one that is left out when a record is written, which takes the very object."""


class ServerTimes(msgspec.Struct, frozen=True, gc=False):
    """What the model server itself says of its work on one answer, in seconds; None: it does not say."""

    queue_s: float | None = None
    prefill_s: float | None = None
    """Reading the prompt; with the queue in it where the server does not tell them apart."""
    decode_s: float | None = None


class AttemptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt on one replica; durations in seconds from the attempt's start."""

    attempt: int
    replica: str
    result: str
    """`ok`, `cancelled`, `lost` (its replica was found dead), or the failure in a word: `status_503`, `timeout_stall`, else `failed`."""
    step: str = ""
    """What it was beside the one before: `same`, `shorter`, `smaller`, `next` (see `policy.resilience.ladder`); empty for the first."""
    model: str = ""
    """The model name that the upstream was sent."""
    status: int | None = None
    upstream_request_id: str | None = None
    """The provider's own name for it, to ask them about."""
    connect_s: float | None = None
    first_byte_s: float | None = None
    first_token_s: float | None = None
    duration_s: float = 0.0
    usage: Usage = NOTHING_USED
    """What the upstream reported of an attempt that failed; of one that answered it stands in the record."""
    cost_micro: int = 0
    """Its part of the record's."""
    began_s: float = 0.0
    """Its start, since the request was received."""
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    """These three are `ServerTimes` of an answer that is complete."""

    @property
    def upstream(self) -> str:
        return self.replica.rpartition("/")[0]


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to one request. Instants are seconds since the epoch, durations seconds since it was received.

    No prompt or answer text, no secret: those belong to audit, under its own policy.
    """

    request_id: str
    started_at: float
    operation: str
    outcome: Outcome
    status: int
    """HTTP status sent to the client; 0 when it left before one was sent."""
    duration_s: float
    key_id: str = ""
    tenant: str = ""
    user: str = ""
    tier: str = ""
    model: str = ""
    """The model name the client asked for."""
    route: str = ""
    """The configured route pattern that matched: a bounded set, fit for a metric label."""
    upstream: str = ""
    upstream_model: str = ""
    stream: bool = False
    error_code: str | None = None
    cause: str | None = None
    """Why it failed, in words for operators; may name upstreams and addresses, which clients are not told."""
    ttft_s: float | None = None
    """First non-empty output seen by the gateway, since the request was received (streams only)."""
    upstream_s: float = 0.0
    """Time during which an attempt was running."""
    usage: Usage = Usage()
    evidence: Evidence = Evidence.ESTIMATED
    reserved_tokens: int = 0
    cost_micro: int = 0
    """Of all attempts, in millionths of the price book's currency; 0 where nothing has a price."""
    price_version: str = ""
    """Of the price book; empty where the model had no price."""
    traffic_bytes: int = 0
    """Of the request's body and the answer's, as far as they are known: of a stream, the texts in it."""
    prompt_tokens_bound: int = 0
    finish_reason: str | None = None
    chunks: int = 0
    degraded: str | None = None
    """The value of `X-Tidegate-Degraded`, if one was sent."""
    rule: str = ""
    """The routing rule that chose the target, or `sla`, `budget`; empty for the route's own order."""
    feature: str = ""
    """The business feature that the client named: its own words, so never a metric label by itself."""
    color: str = ""
    """Of the traffic, as the client named it (`X-Tidegate-Color`): its own word, so never a metric label."""
    unbilled: bool = False
    """The configuration lets this tenant's traffic of this colour go unpaid: `cost_micro` is what it cost, and nobody owes it."""
    confidence: str = ""
    """`low` for an answer of the model that stands in for a failing kind of prompt."""
    attempts: tuple[AttemptRecord, ...] = ()
    trace_id: str = ""
    client_retry: int = 0
    """`x-stainless-retry-count` as sent by OpenAI's SDKs."""
    resumed: bool = False
    """A client came back for the rest of a stream: nothing was asked of an upstream. The request that began it has its own record."""
    span_id: str = ""
    """Of this request's span in the trace."""
    parent_span_id: str = ""
    """Of the caller's span; empty where the trace begins here."""
    sampled: bool = False
    """The trace's `sampled` flag, as it was received or set here: others expect this span."""
    business_context: str = ""
    """`X-Business-Context` as it was sent, bounded; read where it is wanted, never here."""


def billed_attempts(record: RequestRecord) -> Iterator[tuple[AttemptRecord, Usage, Evidence]]:
    """Give each attempt that used or cost something, what it used, and how well that is known; the last with the request's own figures.

    The books and the reports out of records go by this, so that they have the same calls.
    """
    for attempt in record.attempts:
        answered = attempt is record.attempts[-1] and record.usage.total_tokens > 0
        usage = record.usage if answered else attempt.usage
        if attempt.cost_micro or usage.total_tokens:
            yield attempt, usage, record.evidence if answered else Evidence.REPORTED
