"""Turn a failed attempt into the error that the client gets.

The operator's troubles stay the operator's: a refusal of our own key never reaches the client as its 401, nor does what the vendor said
about the account.
"""

from __future__ import annotations

from typing import TypeGuard, assert_never

from tidegate.domain.upstream import Clock, FailureScope, UpstreamFailure
from tidegate.errors import (
    ContextLengthExceeded,
    StreamInterrupted,
    TidegateError,
    UpstreamCredentials,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)

_CREDENTIALS_MESSAGE = (
    "The upstream refused the gateway's own credentials or account. Your request and your key are not at fault: "
    "the gateway's operator must check this upstream's API key, its region and its balance."
)


_NOT_SUPPORTED = (500, 501)
"""With these llama.cpp refuses what its model cannot do."""

_TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_TOO_LONG_PHRASES = ("maximum context length", "max_model_len", "exceeds the available context size")


def failure_to_error(failure: UpstreamFailure) -> TidegateError:
    """Map a failure to the error tree; `failure.message` is already bounded and masked (see `wire.dialects`)."""
    if failure.credentials:
        return UpstreamCredentials(_CREDENTIALS_MESSAGE)
    if failure.clock is not None:
        return UpstreamTimeout(_clock_message(failure.clock), retry_after_s=failure.retry_after_s)
    if failure.rate_limited:
        return UpstreamRateLimited(
            f"The upstream's own rate limit is reached; try again later. It said: {failure.message}", retry_after_s=failure.retry_after_s
        )
    if _is_verdict_on_request(failure):
        if _is_too_long(failure):
            return ContextLengthExceeded(
                f"The prompt does not fit the model's context: shorten it, or lower max_tokens. It said: {failure.message}"
            )
        status = failure.status if _is_4xx(failure.status) else 400
        return UpstreamRejected(_rejection_message(failure), status=status, param=failure.param, upstream_code=failure.code)
    return UpstreamUnavailable(_unavailable_message(failure), retry_after_s=failure.retry_after_s)


def interruption(failure: UpstreamFailure) -> TidegateError:
    """Make the in-band error for a stream that broke after its first output."""
    if failure.clock is not None or failure.in_band or failure.status is not None:
        return failure_to_error(failure)
    return StreamInterrupted(
        "The connection to the model server was lost before the answer was complete: what came is not the whole of it."
    )


def _unavailable_message(failure: UpstreamFailure) -> str:
    """Without an answer of the upstream there is nothing to quote: addresses and causes are for the log, not for clients."""
    if failure.status is None and not failure.in_band:
        return (
            "The model server cannot be reached, or broke off before it had answered. The request itself may be fine, try it again; "
            "the gateway's log has the cause under the same x-request-id."
        )
    return f"The model server could not answer; the request itself may be fine, try it again. It said: {failure.message}"


def _is_too_long(failure: UpstreamFailure) -> bool:
    """Tell a prompt beyond the context, which each server says in its own way (vLLM in words only)."""
    message = failure.message.lower()
    return failure.code in _TOO_LONG_CODES or any(phrase in message for phrase in _TOO_LONG_PHRASES)


def _is_verdict_on_request(failure: UpstreamFailure) -> bool:
    """Whatever the status: servers also say with a 500 that a prompt is too long or that a model takes no pictures."""
    if failure.scope is FailureScope.MODEL:
        return _is_4xx(failure.status) or failure.status in _NOT_SUPPORTED
    return failure.scope is FailureScope.REQUEST


def _is_4xx(status: int | None) -> TypeGuard[int]:
    return status is not None and status // 100 == 4  # noqa: PLR2004  the 4 of 4xx


def _rejection_message(failure: UpstreamFailure) -> str:
    if failure.content_filter:
        return f"The provider's content filter withheld this request or its answer; change the text. It said: {failure.message}"
    if failure.scope is FailureScope.MODEL:
        return f"The upstream cannot serve this with this model; check the model's name and what it supports. It said: {failure.message}"
    return f"The upstream rejected the request: {failure.message}"


def _clock_message(clock: Clock) -> str:
    match clock:
        case Clock.CONNECT:
            return "No connection to the model server within the connect time: it may be down or unreachable."
        case Clock.FIRST_BYTE:
            return "The model server sent no answer at all within the first_byte time: it may be overloaded."
        case Clock.FIRST_TOKEN:
            return "The model server produced no output within the first_token time: a long prompt or a long queue."
        case Clock.STALL:
            return "The model server's stream stood still for longer than the stall time."
        case Clock.TOTAL:
            return "The answer was not complete within the total time: ask for a shorter one, or stream it."
        case _:
            assert_never(clock)
