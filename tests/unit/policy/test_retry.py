"""When a failed attempt is followed by another."""

from __future__ import annotations

from random import Random

import pytest

from tidegate.domain.upstream import Clock, FailureScope, UpstreamFailure
from tidegate.policy.resilience.retry import RetryPolicy

POLICY = RetryPolicy()


@pytest.mark.parametrize(
    ("failure", "attempt", "expected"),
    [
        (UpstreamFailure(FailureScope.REPLICA, retryable=True, message=""), 1, True),
        (UpstreamFailure(FailureScope.REPLICA, retryable=True, message=""), 4, False),
        (UpstreamFailure(FailureScope.KEY, retryable=False, message=""), 1, True),
        (UpstreamFailure(FailureScope.REQUEST, retryable=False, message=""), 1, False),
        (UpstreamFailure(FailureScope.MODEL, retryable=False, message="", content_filter=True), 1, False),
    ],
)
def test_only_what_another_replica_may_do_better_is_tried_again(failure: UpstreamFailure, attempt: int, expected: bool) -> None:
    """A verdict on the request or its content is final; the number of attempts is bounded."""
    assert POLICY.may_retry(failure, attempt) is expected


@pytest.mark.parametrize(
    ("failure", "tries", "expected"),
    [
        (UpstreamFailure(FailureScope.REPLICA, retryable=True, message=""), 1, True),
        (UpstreamFailure(FailureScope.REPLICA, retryable=True, message=""), 2, False),
        (UpstreamFailure(FailureScope.REPLICA, retryable=False, message=""), 1, False),
        (UpstreamFailure(FailureScope.REPLICA, retryable=True, message="", clock=Clock.STALL), 1, False),
        (UpstreamFailure(FailureScope.KEY, retryable=True, message="", rate_limited=True), 1, False),
    ],
)
def test_the_same_replica_is_repeated_only_for_passing_faults(failure: UpstreamFailure, tries: int, expected: bool) -> None:
    """Not after a time-out (the time is spent) and not after a 429 (it asked to be left alone)."""
    assert POLICY.may_repeat(failure, tries) is expected


def test_pauses_have_full_jitter_under_a_growing_cap() -> None:
    """Uniform between nothing and base * 2^(n-1), at most the cap."""
    rng = Random(1)
    for attempt, cap in ((1, 0.1), (2, 0.2), (3, 0.4), (9, 2.0)):
        delays = [POLICY.delay_s(attempt, rng) for _ in range(300)]
        assert 0.0 <= min(delays) < cap * 0.05
        assert cap * 0.95 < max(delays) <= cap
