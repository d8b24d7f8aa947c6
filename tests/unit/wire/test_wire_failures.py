"""From an upstream's failure to the error that the client sees."""

from __future__ import annotations

import pytest

from tidegate.domain.upstream import Clock, FailureScope, UpstreamFailure
from tidegate.errors import (
    ContextLengthExceeded,
    StreamInterrupted,
    UpstreamCredentials,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tidegate.wire.failures import failure_to_error, interruption


def failure(scope: FailureScope = FailureScope.REPLICA, **facts: object) -> UpstreamFailure:
    return UpstreamFailure(scope=scope, retryable=False, message="vendor words", **facts)  # type: ignore[arg-type]  # facts vary by test


def test_a_refusal_of_our_key_is_the_operators_business() -> None:
    """Never a 401 to the client, and nothing of what the vendor said about the account."""
    error = failure_to_error(failure(FailureScope.KEY, status=401, credentials=True))

    assert isinstance(error, UpstreamCredentials)
    assert error.status == 502
    assert "operator" in error.message
    assert "vendor words" not in error.message


@pytest.mark.parametrize("clock", list(Clock))
def test_a_timeout_names_its_clock(clock: Clock) -> None:
    """Whoever reads it knows which setting to look at."""
    error = failure_to_error(failure(clock=clock, retry_after_s=2.0))

    assert isinstance(error, UpstreamTimeout)
    assert "vendor words" not in error.message
    assert {"connect": "connect time", "stall": "stall time", "total": "total time"}.get(clock, clock) in error.message
    assert error.retry_after_s == 2.0


def test_the_upstreams_rate_limit_keeps_its_retry_after() -> None:
    """The client may use the upstream's own wish."""
    error = failure_to_error(failure(FailureScope.KEY, status=429, rate_limited=True, retry_after_s=7.0))

    assert isinstance(error, UpstreamRateLimited)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("scope", "status", "expected_status", "phrase"),
    [
        (FailureScope.REQUEST, 422, 422, "rejected the request"),
        (FailureScope.REQUEST, None, 400, "rejected the request"),
        (FailureScope.MODEL, 404, 404, "model's name"),
    ],
)
def test_a_verdict_on_the_request_keeps_its_status(scope: FailureScope, status: int | None, expected_status: int, phrase: str) -> None:
    """The SDK raises the class that the upstream's own status would have raised."""
    error = failure_to_error(failure(scope, status=status, code="bad_thing", param="messages"))

    assert isinstance(error, UpstreamRejected)
    assert (error.status, error.upstream_code, error.param) == (expected_status, "bad_thing", "messages")
    assert phrase in error.message


def test_a_content_filter_is_said_to_be_one() -> None:
    """The user can change the text; nothing is broken."""
    assert "content filter" in failure_to_error(failure(FailureScope.REQUEST, status=400, content_filter=True)).message


@pytest.mark.parametrize(("scope", "status"), [(FailureScope.REPLICA, 503), (FailureScope.MODEL, 503)])
def test_everything_else_is_an_upstream_that_could_not_answer(scope: FailureScope, status: int | None) -> None:
    """A 502 with what it said, worth trying again."""
    error = failure_to_error(failure(scope, status=status))

    assert isinstance(error, UpstreamUnavailable)
    assert "vendor words" in error.message


def test_a_lost_connection_is_told_without_its_address() -> None:
    """Where our upstreams live is for the log; a client is told to try again."""
    error = failure_to_error(UpstreamFailure(FailureScope.REPLICA, retryable=True, message="http://10.0.0.5:8000 cannot be reached"))

    assert isinstance(error, UpstreamUnavailable)
    assert "10.0.0.5" not in error.message
    assert "try it again" in error.message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("context_length_exceeded", "too long"),
        ("exceed_context_size_error", "request (9000 tokens) exceeds"),
        ("BadRequestError", "This model's maximum context length is 4096 tokens. However, you requested 9000"),
    ],
)
def test_a_prompt_that_does_not_fit_has_one_code_whoever_says_it(code: str, message: str) -> None:
    """Applications shorten the prompt on `context_length_exceeded`; servers say it each in their way."""
    error = failure_to_error(UpstreamFailure(FailureScope.REQUEST, retryable=False, message=message, status=400, code=code))

    assert isinstance(error, ContextLengthExceeded)
    assert (400, "context_length_exceeded") == (error.status, error.code)


def test_a_stream_that_breaks_says_so_or_why() -> None:
    """A lost connection is a broken stream; an error event keeps the server's words; a clock its name."""
    assert isinstance(interruption(failure()), StreamInterrupted)
    assert "vendor words" in interruption(failure(in_band=True)).message
    assert isinstance(interruption(failure(clock=Clock.STALL)), UpstreamTimeout)
    refused = interruption(failure(scope=FailureScope.REQUEST, status=400))  # where the head went out before the upstream's verdict
    assert isinstance(refused, UpstreamRejected)
    assert "vendor words" in refused.message


@pytest.mark.parametrize(("scope", "status"), [(FailureScope.REQUEST, 500), (FailureScope.MODEL, 500), (FailureScope.MODEL, 501)])
def test_a_verdict_on_the_request_is_one_even_under_a_5xx(scope: FailureScope, status: int) -> None:
    """The client must change something: a 400, which no SDK repeats."""
    error = failure_to_error(failure(scope, status=status))

    assert isinstance(error, UpstreamRejected)
    assert (400, False) == (error.status, error.retryable)
