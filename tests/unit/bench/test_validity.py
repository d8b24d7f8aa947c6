"""When a run does not count."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY

from tidegate.bench.sample import ClientHealth
from tidegate.bench.validity import RunConditions, busy_clients, check, longest_lag_s

GOOD = RunConditions(closed_loop=False, requests=100, lag_p99_s=0.004, ttft_p50_s=0.2, sent_ratio=0.99, clients=(HEALTHY,))


def health(**members: object) -> ClientHealth:
    return msgspec.structs.replace(HEALTHY, **members)


def test_a_client_that_kept_up_makes_a_valid_run() -> None:
    """Nothing to say."""
    assert () == check(GOOD)


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (msgspec.structs.replace(GOOD, lag_p99_s=0.0051), "more than 5.1 ms after they were due (at most 5.0 ms)"),
        (msgspec.structs.replace(GOOD, sent_ratio=0.979), "only 97.9 % of the requests that were due were sent in time"),
        (msgspec.structs.replace(GOOD, requests=0), "no request was sent"),
        (msgspec.structs.replace(GOOD, clients=(health(cap_reached=3),)), "client 0 held 3 requests back"),
        (msgspec.structs.replace(GOOD, clients=(health(loop_lag_max_s=0.11),)), "client 0 stood still for 110 ms"),
        (msgspec.structs.replace(GOOD, clients=(health(loop_lag_p99_s=0.011),)), "client 0 was often late: its p99 is 11.0 ms"),
    ],
)
def test_a_client_that_was_the_bottleneck_makes_an_invalid_one(evidence: RunConditions, words: str) -> None:
    """One reason, which says by how much."""
    [reason] = check(evidence)
    assert words in reason


def test_the_lag_may_be_a_hundredth_of_slow_first_tokens() -> None:
    """Ten milliseconds do not matter beside a second."""
    slow = msgspec.structs.replace(GOOD, lag_p99_s=0.009, ttft_p50_s=1.0)
    assert ((), 0.01, 0.005) == (check(slow), longest_lag_s(1.0), longest_lag_s(None))


def test_a_closed_loop_cannot_be_late() -> None:
    """Lag and rate do not apply; stalls and the cap do."""
    closed = msgspec.structs.replace(GOOD, closed_loop=True, lag_p99_s=1.0, sent_ratio=0.1)
    assert () == check(closed)
    assert 1 == len(check(msgspec.structs.replace(closed, clients=(health(cap_reached=1),))))


def test_what_was_not_measured_is_no_reason() -> None:
    """Nothing sent in time is told by the number of requests."""
    assert () == check(msgspec.structs.replace(GOOD, lag_p99_s=None, sent_ratio=None, ttft_p50_s=None))


def test_every_reason_is_told() -> None:
    """Of each client by itself."""
    bad = msgspec.structs.replace(
        GOOD, lag_p99_s=0.5, sent_ratio=0.5, clients=(health(cap_reached=1), health(client=1, loop_lag_max_s=1.0))
    )
    assert 4 == len(check(bad))


def test_a_busy_client_is_remarked_upon() -> None:
    """It may have kept up, with nothing in reserve."""
    assert [1, 0] == [len(busy_clients([health(cpu_ratio=0.95)])), len(busy_clients([HEALTHY]))]
