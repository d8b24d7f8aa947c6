"""Decide, once a request is over, whether it is kept as spans, and why.

All of what went wrong is kept: errors, slow answers, degraded ones, retries. Of the rest, where the trace begins here, a share by the
trace's id, so that everybody who goes by that id keeps the same traces. Where a caller began the trace, its `sampled` flag decides: it has
its own share, and one span of a trace without the others tells little.

A refusal of what the client did (its key, its limit, its body) is no error of the gateway: a flood of those must not be a flood of spans.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.wire.trace_context import is_in_share, share_threshold


class KeptFor(StrEnum):
    ERROR = "error"
    SLOW = "slow"
    DEGRADED = "degraded"
    RETRIED = "retried"
    CALLER = "caller"
    """The caller's `traceparent` is marked as sampled."""
    SHARE = "share"


class TailSampling(msgspec.Struct, frozen=True):
    """`keep_ratio` is in 0..1."""

    keep_ratio: float
    slow_s: float
    """Of a whole answer its duration, of a stream the time to its first output."""

    def judge(self, record: RequestRecord) -> KeptFor | None:
        """Give the first reason to keep it; None: it is not kept."""
        if is_error(record.outcome):
            return KeptFor.ERROR
        if (record.duration_s if record.ttft_s is None else record.ttft_s) >= self.slow_s:
            return KeptFor.SLOW
        if record.degraded is not None:
            return KeptFor.DEGRADED
        if len(record.attempts) > 1:
            return KeptFor.RETRIED
        if record.parent_span_id:
            return KeptFor.CALLER if record.sampled else None
        return KeptFor.SHARE if record.sampled or is_in_share(record.trace_id, share_threshold(self.keep_ratio)) else None


def is_error(outcome: Outcome) -> bool:
    """Tell whether a request failed, and not through the client."""
    match outcome:
        case (
            Outcome.MODEL_ERROR
            | Outcome.REJECTED_OVERLOAD
            | Outcome.REJECTED_NO_REPLICA
            | Outcome.FAILED_UPSTREAM
            | Outcome.FAILED_TIMEOUT
            | Outcome.FAILED_MID_STREAM
            | Outcome.FAILED_INTERNAL
        ):
            return True
        case (
            Outcome.OK
            | Outcome.TRUNCATED
            | Outcome.CONTENT_FILTER
            | Outcome.CLIENT_CANCELLED
            | Outcome.SERVED_FROM_CACHE
            | Outcome.DEGRADED
            | Outcome.REJECTED_INVALID
            | Outcome.REJECTED_UNAUTHENTICATED
            | Outcome.REJECTED_FORBIDDEN
            | Outcome.REJECTED_RATE_LIMIT
            | Outcome.REJECTED_BUDGET
            | Outcome.REJECTED_UPSTREAM
        ):
            return False
        case _:
            assert_never(outcome)
