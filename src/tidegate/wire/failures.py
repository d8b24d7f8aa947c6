"""Turn a failed attempt into the error that the client gets.

The operator's troubles stay the operator's: a refusal of our own key never reaches the client as its 401, nor does what the vendor said
about the account.
"""

from __future__ import annotations

from typing import assert_never

from tidegate.domain.upstream import Clock, FailureScope, UpstreamFailure
from tidegate.errors import TidegateError, UpstreamCredentials, UpstreamRateLimited, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable

_CREDENTIALS_MESSAGE = (
    "The upstream refused the gateway's own credentials or account. Your request and your key are not at fault: "
    "the gateway's operator must check this upstream's API key, its region and its balance."
)


def failure_to_error(failure: UpstreamFailure) -> TidegateError:
    """Map a failure to the error tree; `failure.message` is already bounded and masked (see `wire.dialects`)."""
    if failure.credentials:
        return UpstreamCredentials(_CREDENTIALS_MESSAGE)
    if failure.clock is not None:
        return UpstreamTimeout(f"{_clock_message(failure.clock)} {failure.message}".rstrip(), retry_after_s=failure.retry_after_s)
    if failure.rate_limited:
        return UpstreamRateLimited(
            f"The upstream's own rate limit is reached; try again later. It said: {failure.message}", retry_after_s=failure.retry_after_s
        )
    if _is_verdict_on_request(failure):
        return UpstreamRejected(_rejection_message(failure), status=failure.status or 400, param=failure.param, upstream_code=failure.code)
    return UpstreamUnavailable(
        f"The model server could not answer; the request itself may be fine, try it again. Cause: {failure.message}",
        retry_after_s=failure.retry_after_s,
    )


def _is_verdict_on_request(failure: UpstreamFailure) -> bool:
    is_4xx = failure.status is not None and failure.status // 100 == 4  # noqa: PLR2004  the 4 of 4xx
    if failure.scope is FailureScope.REQUEST:
        return is_4xx or failure.status is None
    return failure.scope is FailureScope.MODEL and is_4xx


def _rejection_message(failure: UpstreamFailure) -> str:
    if failure.content_filter:
        return f"The provider's content filter withheld this request or its answer; change the text. It said: {failure.message}"
    if failure.scope is FailureScope.MODEL:
        return f"The upstream cannot serve this model; check the model's name. It said: {failure.message}"
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
