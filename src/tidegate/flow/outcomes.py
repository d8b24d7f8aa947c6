"""Which outcome a request has, by what its answer, its failure or its refusal was."""

from __future__ import annotations

from tidegate.domain.outcome import FinishReason, Outcome
from tidegate.domain.request import ParsedRequest
from tidegate.domain.upstream import UpstreamFailure
from tidegate.errors import BudgetExceeded, ContextLengthExceeded, TidegateError, Unauthenticated, UpstreamRejected
from tidegate.flow.facts import CallResult
from tidegate.flow.faults import words_for_operators

_LONGEST_CAUSE = 300  # characters in a record: enough for any message of ours, and most of others

_BY_FINISH_REASON: dict[str | None, Outcome] = {
    FinishReason.LENGTH: Outcome.TRUNCATED,
    FinishReason.CONTENT_FILTER: Outcome.CONTENT_FILTER,
    FinishReason.ERROR: Outcome.MODEL_ERROR,
}


def outcome_of_answer(finish_reason: str | None) -> Outcome:
    return _BY_FINISH_REASON.get(finish_reason, Outcome.OK)


def outcome_of_failure(failure: UpstreamFailure, error: TidegateError) -> Outcome:
    if failure.content_filter:
        return Outcome.CONTENT_FILTER
    if isinstance(error, UpstreamRejected | ContextLengthExceeded):
        return Outcome.REJECTED_UPSTREAM
    if failure.in_band:
        return Outcome.MODEL_ERROR
    if failure.clock is not None:
        return Outcome.FAILED_TIMEOUT
    return Outcome.FAILED_UPSTREAM


def outcome_of_refusal(error: TidegateError) -> Outcome:
    match error.status:
        case 401:
            return Outcome.REJECTED_UNAUTHENTICATED
        case 403:
            return Outcome.REJECTED_FORBIDDEN
        case 429:
            return Outcome.REJECTED_BUDGET if isinstance(error, BudgetExceeded) else Outcome.REJECTED_RATE_LIMIT
        case 500:
            return Outcome.FAILED_INTERNAL
        case 503:
            return Outcome.REJECTED_OVERLOAD
        case _:
            return Outcome.REJECTED_INVALID


def cause_of(error: TidegateError | None, result: CallResult | None, request: ParsedRequest | None) -> str | None:
    """Give what went wrong in the words for operators: the upstream's failure, else what the client was told."""
    if result is not None and result.failure is not None:
        assert request is not None
        return words_for_operators(result.failure, request)[:_LONGEST_CAUSE]
    if result is not None and result.denied is not None and error is None:
        denied = result.denied
        return f"the limit {denied.rule} had {denied.remaining} of {denied.requested} more {denied.resource} for a stream"[:_LONGEST_CAUSE]
    if error is None:
        return None
    why = error.why if isinstance(error, Unauthenticated) else None
    return (why or error.message)[:_LONGEST_CAUSE]
