"""What became of a request: one outcome, and why.

Only `ok` is success. What HTTP calls a success is told beside it, because it is what others report: an error within a stream, a stream cut
off, half an answer and broken JSON all have status 200.

A good answer that is merely late fails, but it *is* an answer: its latencies stay among those of answers. Left out, no percentile could
ever exceed the limits that answers are judged by. Answers that are short or wrong stay out: half an answer takes half the time.

Whatever waits is judged from when the request was due: a user's patience does not begin when a client gets round to sending.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tidegate.bench.plan import PlannedRequest
from tidegate.bench.sample import End, Sample

_TOOL_FINISHES: Final = frozenset({"tool_calls", "function_call"})
_LEAST_SUCCESS: Final = 200
_LEAST_OTHER: Final = 300


class Outcome(StrEnum):
    """Each request has one."""

    OK = "ok"
    SEMANTIC = "semantic"
    """A whole answer that is of no use: too short, too late, not what was asked for."""
    TRUNCATED = "truncated"
    STREAM_ERROR = "stream_error"
    HTTP = "http"
    TRANSPORT = "transport"
    """No connection, one that broke, or time ran out."""
    NOT_SENT = "not_sent"
    """The run was ended first: no request, and in no ratio."""


class Reason(StrEnum):
    """Why an outcome is what it is. Of `http` the reason is the status instead: `status_429`."""

    TIMEOUT = "timeout"
    SHORT_OUTPUT = "short_output"
    SLOW_TTFT = "slow_ttft"
    SLOW_E2E = "slow_e2e"
    INVALID_JSON = "invalid_json"
    SCHEMA_MISMATCH = "schema_mismatch"
    PATTERN_MISSING = "pattern_missing"
    CONTENT_FILTER = "content_filter"


_LATE: Final = frozenset({Reason.SLOW_TTFT.value, Reason.SLOW_E2E.value})


class Criteria(msgspec.Struct, frozen=True):
    """What a good answer is; None switches a criterion off. The SLO is apart: an answer that misses it is ok, but no goodput."""

    short_ratio: float | None = 0.8
    """An answer with fewer than this part of the expected tokens is short."""
    ttft_s: float | None = 1.5
    e2e_s: float | None = 5.0
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    slo_e2e_s: float | None = None
    stream: bool = True
    """Answers come as streams. One that comes in one piece has no first token to be waited for."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A request with its verdict."""

    sample: Sample
    planned: PlannedRequest
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    good: bool = False
    """It is ok and met the SLO."""
    first_at: float | None = None
    """When the first output of a stream came, answer or reasoning."""

    @property
    def answered(self) -> bool:
        """Tell whether a good answer came, however late: then its latencies count among those of answers."""
        return self.outcome is Outcome.OK or (self.outcome is Outcome.SEMANTIC and _LATE.issuperset(self.reasons))


def judge(sample: Sample, planned: PlannedRequest, criteria: Criteria) -> Judged:
    """Give a request its outcome."""
    first_at = sample.first_output_at if criteria.stream else None
    outcome, reasons = _verdict(sample, planned, criteria, first_at)
    good = outcome is Outcome.OK and _meets_slo(sample, criteria, first_at)
    return Judged(sample, planned, outcome, reasons, good=good, first_at=first_at)


def http_success(sample: Sample) -> bool:
    """Tell whether a success status came, whatever came after it."""
    return _LEAST_SUCCESS <= sample.status < _LEAST_OTHER


def tpot_s(sample: Sample) -> float | None:
    """Give the mean time of the tokens after the first.

    None without usage, with fewer than two tokens, and where all came in one read: how fast they were made does not show then.
    """
    first, last, tokens = sample.first_output_at, sample.last_output_at, sample.completion_tokens
    if first is None or last is None or tokens is None or tokens <= 1 or last <= first:
        return None
    return (last - first) / (tokens - 1)


def _verdict(sample: Sample, planned: PlannedRequest, criteria: Criteria, first_at: float | None) -> tuple[Outcome, tuple[str, ...]]:
    match sample.end:
        case End.COMPLETE:
            faults = _faults(sample, planned, criteria, first_at)
            return Outcome.SEMANTIC if faults else Outcome.OK, faults
        case End.TRANSPORT:
            return Outcome.TRANSPORT, ()
        case End.TIMEOUT:
            return Outcome.TRANSPORT, (Reason.TIMEOUT.value,)
        case End.HTTP_ERROR:
            return Outcome.HTTP, (f"status_{sample.status}",)
        case End.STREAM_ERROR:
            return Outcome.STREAM_ERROR, ()
        case End.TRUNCATED:
            return Outcome.TRUNCATED, ()
        case End.NOT_SENT:
            return Outcome.NOT_SENT, ()
        case _ as never:
            assert_never(never)


def _faults(sample: Sample, planned: PlannedRequest, criteria: Criteria, first_at: float | None) -> tuple[str, ...]:
    faults: list[str] = []
    if _is_short(sample, planned, criteria):
        faults.append(Reason.SHORT_OUTPUT.value)
    if _is_later(first_at, sample.due_at, criteria.ttft_s):
        faults.append(Reason.SLOW_TTFT.value)
    if _is_later(sample.ended_at, sample.due_at, criteria.e2e_s):
        faults.append(Reason.SLOW_E2E.value)
    faults.extend(sample.text_faults)
    if sample.finish_reason == Reason.CONTENT_FILTER:
        faults.append(Reason.CONTENT_FILTER.value)
    return tuple(faults)


def _is_short(sample: Sample, planned: PlannedRequest, criteria: Criteria) -> bool:
    """Compare what came with what was expected.

    Nothing is expected when the model decides, or calls a tool. Without usage the length is not known, chunks being no tokens: such an
    answer passes unless nothing came at all, and the report says how many there were.
    """
    expected, came = planned.completion_tokens, sample.completion_tokens
    if criteria.short_ratio is None or expected is None or sample.finish_reason in _TOOL_FINISHES:
        return False
    if came is None:
        return sample.output_chunks == 0
    return came < criteria.short_ratio * expected


def _meets_slo(sample: Sample, criteria: Criteria, first_at: float | None) -> bool:
    per_token_s, limit_s = tpot_s(sample), criteria.slo_tpot_s
    return not (
        _is_later(first_at, sample.due_at, criteria.slo_ttft_s)
        or _is_later(sample.ended_at, sample.due_at, criteria.slo_e2e_s)
        or (per_token_s is not None and limit_s is not None and per_token_s > limit_s)
    )


def _is_later(at: float | None, due_at: float, limit_s: float | None) -> bool:
    return at is not None and limit_s is not None and at - due_at > limit_s
