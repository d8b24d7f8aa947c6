"""The fleet: which replica is chosen, and what is known of each."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tidegate.config.schema_resilience import BreakerSection
from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import (
    BreakerPhase,
    BreakerSettings,
    Clock,
    FailureScope,
    Pick,
    Pool,
    PoolStatus,
    Replica,
    ReplicaPhase,
    ReplicaStatus,
    Route,
    Target,
    UpstreamFailure,
)
from tidegate.flow.faults import answer_too_large, from_call_failure
from tidegate.policy.routing.fleet import Fleet
from tidegate.ports import CallFailure, CallFailureKind

A, B = ReplicaId("a/0"), ReplicaId("b/0")
A2 = ReplicaId("a/1")
M = ModelName("m")
ROUTE = Route("m", (Target(UpstreamName("a")), Target(UpstreamName("b"), ModelName("other"))))
DOWN = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="connection refused", connect=True)
BROKEN = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="status 500", status=500)
LIMITED = UpstreamFailure(FailureScope.KEY, retryable=True, message="slow down", rate_limited=True, retry_after_s=20.0)


class _Longest(Random):
    """Draws the end of a range: no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def _fleet(*, before: Fleet | None = None) -> Fleet:
    replicas = [Replica(A, UpstreamName("a"), "vllm"), Replica(A2, UpstreamName("a"), "vllm"), Replica(B, UpstreamName("b"), "openai")]
    return Fleet(replicas, before=before, rng=_Longest())


def _pool(count: int, **settings: object) -> Pool:
    replicas = tuple(Replica(ReplicaId(f"a/{index}"), UpstreamName("a"), "vllm", address=f"http://{index}") for index in range(count))
    return msgspec.structs.replace(Pool(UpstreamName("a"), replicas), **settings)


def _choice(fleet: Fleet, avoid: set[ReplicaId] | None = None, *, now: float = 0.0) -> tuple[str, str, int] | None:
    choice = fleet.choose(ROUTE, M, avoid or set(), now=now, rng=Random(0))
    return None if choice is None else (choice.replica.replica, choice.model, choice.rank)


def _chosen(fleet: Fleet, *, now: float = 0.0) -> str | None:
    choice = _choice(fleet, now=now)
    return None if choice is None else choice[0]


def _available(fleet: Fleet, *, now: float) -> bool:
    return _choice(fleet, {A2, B}, now=now) is not None


def _call(fleet: Fleet, replica: ReplicaId, failure: UpstreamFailure | None, now: float, ttft_s: float | None = None) -> None:
    fleet.begin(replica, now=now)
    if ttft_s is not None:
        fleet.first_output(replica, now=now, ttft_s=ttft_s, began_at=now)
    fleet.end(replica, failure, now=now, began_at=now, output_reported=ttft_s is not None)


def _status(fleet: Fleet, replica: ReplicaId, *, now: float) -> ReplicaStatus:
    return next(status for status in fleet.statistics(now=now) if status.replica == replica)


# ── the order of targets, and what holds a replica back ──────────────────────


def test_the_preferred_target_is_used_while_it_can_serve() -> None:
    """Within a target the replica with fewer calls in flight; the stand-by with its own model name only when the first is out."""
    fleet = _fleet()
    assert _choice(fleet) == ("a/0", "m", 0)
    fleet.begin(A, now=0.0)
    assert _choice(fleet) == ("a/1", "m", 0)
    assert _choice(fleet, {A, A2}) == ("b/0", "other", 1)
    assert _choice(fleet, {A, A2, B}) is None
    fleet.abandon(A, now=0.0)
    assert repr(fleet) == "Fleet(a/0: 0, a/1: 0, b/0: 0)"


def test_a_target_that_does_not_exist_is_passed_over() -> None:
    """In the choice, in the wait, and in what is observed."""
    fleet = Fleet([_pool(1)])
    route = Route("m", (Target(UpstreamName("nowhere")), Target(UpstreamName("a"))))
    choice = fleet.choose(route, M, (), now=0.0, rng=Random(0))
    assert choice is not None
    assert (A, 1) == (choice.replica.replica, choice.rank)
    assert fleet.choose(route, M, (A,), now=0.0) is None
    assert fleet.wait_s(route, now=0.0) is None
    assert not fleet.is_rate_limited(route, now=0.0)
    assert fleet.observed_ttft_s(UpstreamName("nowhere")) is None
    assert fleet.explain(route, M, now=0.0)[0].why == "there is no such upstream"


def test_a_replica_that_answers_429_is_set_aside_for_its_retry_after() -> None:
    """Its own wish is believed between a second and a minute."""
    fleet = _fleet()
    _call(fleet, A, LIMITED, 0.0)
    assert not _available(fleet, now=19.9)
    assert _available(fleet, now=20.0)
    assert fleet.wait_s(ROUTE, now=5.0) == 15.0
    assert fleet.is_rate_limited(ROUTE, now=5.0)
    assert fleet.wait_s(ROUTE, now=25.0) is None
    _call(fleet, A, msgspec.structs.replace(LIMITED, retry_after_s=None), 30.0)
    assert not _available(fleet, now=30.9)
    _call(fleet, A, msgspec.structs.replace(LIMITED, retry_after_s=9999.0), 40.0)
    assert _available(fleet, now=100.0)


def test_a_replica_set_aside_alone_in_its_pool_is_used_again_when_its_time_is_over() -> None:
    """The quick way through the choice knows the set-aside time too."""
    fleet = Fleet([_pool(1)])
    _call(fleet, A, LIMITED, 0.0)
    assert (None, "a/0") == (_chosen(fleet, now=19.0), _chosen(fleet, now=20.0))
    fleet.begin(A, now=20.0)
    assert _chosen(fleet, now=20.0) == "a/0"


def test_readiness_tells_each_phase() -> None:
    """Unused, ready, failing for a while, set aside, warming, away."""
    fleet = _fleet()

    def phase(now: float = 0.0) -> ReplicaPhase:
        return _status(fleet, A, now=now).phase

    assert phase() is ReplicaPhase.UNUSED
    _call(fleet, A, None, 0.0)
    assert phase() is ReplicaPhase.READY
    _call(fleet, A, DOWN, 1.0)
    assert phase(2.0) is ReplicaPhase.FAILING
    assert _status(fleet, A, now=2.0) == ReplicaStatus(A, UpstreamName("a"), ReplicaPhase.FAILING, 0, "connection refused")
    assert phase(12.0) is ReplicaPhase.READY
    fleet.mark(A, present=True, warm=False)
    assert phase(12.0) is ReplicaPhase.WARMING
    assert _status(fleet, A, now=12.0).why == "it is starting"
    fleet.mark(A, present=False, warm=False, last_error="exited")
    assert phase(12.0) is ReplicaPhase.AWAY
    assert _status(fleet, A, now=12.0).why == "its process does not run"
    assert not _available(fleet, now=12.0)
    assert fleet.wait_s(Route("m", ROUTE.targets[:1]), now=12.0) is None
    fleet.mark(A, present=True, warm=True)
    _call(fleet, A, LIMITED, 20.0)
    assert phase(20.5) is ReplicaPhase.SET_ASIDE
    assert (False, "it answered 429 and asked for a pause", 19.5) == (
        _status(fleet, A, now=20.5).available,
        _status(fleet, A, now=20.5).why,
        _status(fleet, A, now=20.5).back_in_s,
    )


def test_a_health_check_takes_a_replica_out_and_brings_it_back() -> None:
    """Only news are news; a replica that nobody knows is none."""
    fleet = _fleet()
    assert not fleet.report(A, alive=True, reason="", now=0.0)
    assert not fleet.report(ReplicaId("gone/7"), alive=False, reason="timeout", now=0.0)
    assert fleet.report(A, alive=False, reason="10.0.0.1 timed out", now=1.0)
    assert not fleet.report(A, alive=False, reason="again", now=2.0)
    assert not _available(fleet, now=2.0)
    status = _status(fleet, A, now=2.0)
    assert (ReplicaPhase.AWAY, "10.0.0.1 timed out", "it does not answer health checks") == (status.phase, status.last_error, status.why)
    assert fleet.wait_s(Route("m", ROUTE.targets[:1]), now=2.0) is None
    assert fleet.report(A, alive=True, reason="", now=3.0)
    assert _available(fleet, now=3.0)


def test_others_go_before_a_doubted_replica() -> None:
    """One failed health check is no reason to refuse calls, and reason enough to ask somebody else first; a good one ends the doubt."""
    fleet = _fleet()
    assert not fleet.report(A, alive=True, reason="refused", now=1.0, doubted=True)
    assert not fleet.report(A2, alive=True, reason="refused", now=1.0, doubted=True)
    assert _chosen(fleet, now=1.0) == B
    status = _status(fleet, A, now=1.0)
    assert (ReplicaPhase.UNUSED, True, "others go first: its last health check failed") == (status.phase, status.available, status.why)
    assert _available(fleet, now=1.0), "better than nobody"
    assert not fleet.report(A, alive=True, reason="", now=2.0)
    assert _chosen(fleet, now=2.0) == A


def test_a_replica_without_a_breaker_is_doubted_too() -> None:
    """Doubt is no affair of the breaker's."""
    fleet = Fleet([_pool(2, breaker=BreakerSettings(enabled=False))])
    fleet.report(A, alive=True, reason="refused", now=1.0, doubted=True)
    assert {A2} == {_chosen(fleet, now=1.0) for _ in range(4)}
    assert _available(fleet, now=1.0)


def test_a_server_that_is_back_is_probed_at_once() -> None:
    """A health check or a supervisor ends the pause of an open breaker."""
    fleet = Fleet([_pool(1, breaker=BreakerSettings(cooldown_s=30.0))])
    for now in (0.0, 0.0):
        _call(fleet, A, DOWN, now)
    assert fleet.report(A, alive=False, reason="refused", now=1.0)
    assert fleet.report(A, alive=True, reason="", now=2.0)
    assert _status(fleet, A, now=2.0).breaker is BreakerPhase.HALF_OPEN
    assert _chosen(fleet, now=2.0) == "a/0"
    _call(fleet, A, DOWN, 2.0)
    assert _chosen(fleet, now=2.1) is None
    fleet.mark(A, present=True, warm=True)
    assert _chosen(fleet, now=2.1) is None
    fleet.mark(A, present=True, warm=False)
    fleet.mark(A, present=True, warm=True)
    assert _chosen(fleet, now=2.1) == "a/0"


def test_the_usage_option_that_a_server_refused_is_remembered() -> None:
    """Only for that replica."""
    fleet = _fleet()
    fleet.usage_option_refused(A)
    assert (False, True) == (fleet.may_ask_usage(A), fleet.may_ask_usage(A2))


# ── breakers in the choice ────────────────────────────────────────────────────


def test_hard_open_replicas_are_not_chosen_even_with_no_other() -> None:
    """And the soonest end of a pause is what a client is told to wait for, as no rate limit."""
    fleet = Fleet([_pool(1)], rng=_Longest())
    _call(fleet, A, DOWN, 10.0)
    _call(fleet, A, DOWN, 10.0)
    assert _chosen(fleet, now=10.5) is None
    assert (0.5, False) == (fleet.wait_s(ROUTE, now=10.5), fleet.is_rate_limited(ROUTE, now=10.5))
    status = _status(fleet, A, now=10.5)
    assert (ReplicaPhase.FAILING, BreakerPhase.OPEN, False, 0.5, 1) == (
        status.phase,
        status.breaker,
        status.available,
        status.back_in_s,
        status.trips,
    )
    assert status.why == "left alone for 0.5 s more: 2 connections in a row could not be had"
    assert _chosen(fleet, now=11.0) == "a/0"
    assert _status(fleet, A, now=11.0).why == "being tried with few calls: 2 connections in a row could not be had"
    assert fleet.wait_s(ROUTE, now=11.0) is None


def test_a_probe_is_given_out_before_the_others_are_asked() -> None:
    """Else the ones without trouble would always win, and the replica would never come back; no more than the probes, though."""
    fleet = Fleet([_pool(2)], rng=_Longest())
    _call(fleet, A, DOWN, 10.0)
    _call(fleet, A, DOWN, 10.0)
    assert _chosen(fleet, now=10.5) == "a/1"
    for _ in range(2):
        assert _chosen(fleet, now=11.0) == "a/0"
        fleet.begin(A, now=11.0)
    assert _chosen(fleet, now=11.0) == "a/1"
    for _ in range(2):
        fleet.end(A, None, now=11.5, began_at=11.0)
    assert _status(fleet, A, now=11.5).breaker is BreakerPhase.CLOSED


def test_a_recovered_replica_gets_more_bit_by_bit() -> None:
    """At a tenth of its weight it waits until the others have ten times its calls."""
    fleet = Fleet([_pool(2)], rng=_Longest())
    for now in (10.0, 10.0):
        _call(fleet, A, DOWN, now)
    for now in (11.0, 11.0):
        _call(fleet, A, None, now)
    begun = {"a/0": 0, "a/1": 0}
    for _ in range(22):
        choice = fleet.choose(ROUTE, M, (), now=11.0, rng=Random(0))
        assert choice is not None
        fleet.begin(choice.replica.replica, now=11.0)
        begun[choice.replica.replica] += 1
    assert begun == {"a/0": 2, "a/1": 20}


def test_soft_open_replicas_come_last_but_are_used() -> None:
    """Of the pool, and of the route: the stand-by goes first; when it is gone, the slow one answers."""
    quick = BreakerSettings(min_calls=1)
    fleet = Fleet([_pool(2, breaker=quick), Pool(UpstreamName("b"), (Replica(B, UpstreamName("b"), "openai"),))], rng=_Longest())
    _call(fleet, A, None, 0.0, ttft_s=9.0)
    assert _chosen(fleet, now=0.5) == "a/1"
    _call(fleet, A2, None, 0.0, ttft_s=9.0)
    assert _choice(fleet, now=0.5) == ("b/0", "other", 1)
    assert _choice(fleet, {B}, now=0.5) is not None
    status = _status(fleet, A, now=0.5)
    assert (BreakerPhase.SOFT_OPEN, True, ReplicaPhase.READY) == (status.breaker, status.available, status.phase)
    assert status.why == "others go first: 1 of the last 1 first tokens took longer than 3 s"
    assert _choice(fleet, now=1.0) == ("a/0", "m", 0)


def test_late_first_tokens_count_before_they_come() -> None:
    """A pool of one and a pool of several: the stand-by goes first while the slow ones are still awaited."""
    for count in (1, 2):
        quick = BreakerSettings(min_calls=1)
        fleet = Fleet([_pool(count, breaker=quick), Pool(UpstreamName("b"), (Replica(B, UpstreamName("b"), "openai"),))], rng=_Longest())
        for replica in (A, A2)[:count]:
            fleet.begin(replica, now=0.0)
            assert fleet.overdue_s(replica) == 3.0
            fleet.output_overdue(replica, now=3.0, began_at=0.0)
        assert _choice(fleet, now=3.5) == ("b/0", "other", 1)
        fleet.first_output(A, now=8.0, ttft_s=8.0, began_at=0.0, was_overdue=True)
        fleet.end(A, None, now=9.0, began_at=0.0, output_reported=True)
        assert _status(fleet, A, now=9.0).trips == 1
    off = Fleet([_pool(1, breaker=BreakerSettings(enabled=False))])
    off.begin(A, now=0.0)
    off.output_overdue(A, now=3.0, began_at=0.0)
    assert off.overdue_s(A) is None


def test_one_bad_replica_does_not_keep_its_pool_closed() -> None:
    """After a minute's outage of all four, three that are well again serve within half a minute, whatever the fourth does."""
    fleet = Fleet([_pool(4)], rng=_Longest())
    route = Route("m", (Target(UpstreamName("a")),))
    for tick in range(4 * 90):
        now = tick / 4
        for _ in range(3):
            choice = fleet.choose(route, M, (), now=now)
            if choice is not None:
                well = now >= 60.0 and choice.replica.replica != A
                _call(fleet, choice.replica.replica, None if well else BROKEN, now)
        if now == 59.0:
            assert fleet.pool_statistics(now=now)[0].breaker is not BreakerPhase.CLOSED
    assert fleet.pool_statistics(now=90.0)[0].breaker is BreakerPhase.CLOSED


def test_a_last_resort_serves_when_nothing_else_can() -> None:
    """As a stand-by it does not go before a slow server, only before none; where the route names it first, it is first."""
    quick = BreakerSettings(min_calls=1, connect_failures=1)
    last = Pool(UpstreamName("b"), (Replica(B, UpstreamName("b"), "llamacpp"),), last_resort=True)
    fleet = Fleet([_pool(1, breaker=quick), last], rng=_Longest())
    _call(fleet, A, None, 0.0, ttft_s=9.0)
    assert _choice(fleet, now=0.5) == ("a/0", "m", 0)
    assert _choice(fleet, {A}, now=0.5) == ("b/0", "other", 1)
    _call(fleet, A, DOWN, 0.5)
    assert _choice(fleet, now=0.6) == ("b/0", "other", 1)
    turned = Route("m", (Target(UpstreamName("b")), Target(UpstreamName("a"))))
    choice = fleet.choose(turned, M, (), now=0.6)
    assert choice is not None
    assert ("b/0", 0) == (choice.replica.replica, choice.rank)


def test_which_failures_count_against_a_breaker() -> None:
    """The replica's own and those of our key; what is about the request, the model, a limit or our own bounds never does."""
    ignored = [
        LIMITED,
        UpstreamFailure(FailureScope.REQUEST, retryable=False, message="bad", status=400),
        UpstreamFailure(FailureScope.REQUEST, retryable=False, message="no", content_filter=True),
        UpstreamFailure(FailureScope.REPLICA, retryable=False, message="no", content_filter=True),
        UpstreamFailure(FailureScope.MODEL, retryable=False, message="unknown", status=404),
        from_call_failure(CallFailure(CallFailureKind.POOL_FULL, "full")),
        from_call_failure(CallFailure(CallFailureKind.TOO_LARGE, "large")),
        answer_too_large(5),
    ]
    for failure in ignored:
        fleet = _fleet()
        for _ in range(50):
            _call(fleet, A, failure, 0.0)
        assert _status(fleet, A, now=0.0).breaker is BreakerPhase.CLOSED
        assert _status(fleet, A, now=0.0).last_error is None
    counted = [
        (BROKEN, 5),
        (UpstreamFailure(FailureScope.KEY, retryable=False, message="no", credentials=True), 5),
        (UpstreamFailure(FailureScope.REPLICA, retryable=True, message="slow", clock=Clock.CONNECT), 2),
        (from_call_failure(CallFailure(CallFailureKind.RESET, "reset")), 5),
        *((from_call_failure(CallFailure(kind, "no")), 2) for kind in (CallFailureKind.DNS, CallFailureKind.CONNECT, CallFailureKind.TLS)),
    ]
    for failure, number in counted:
        fleet = _fleet()
        for _ in range(number - 1):
            _call(fleet, A, failure, 0.0)
        assert _status(fleet, A, now=0.0).breaker is BreakerPhase.CLOSED
        _call(fleet, A, failure, 0.0)
        assert _status(fleet, A, now=0.0).breaker is BreakerPhase.OPEN


def test_a_breaker_that_is_turned_off_never_trips() -> None:
    """Nor does the pool's, and a slow first token is only observed."""
    fleet = Fleet([_pool(2, breaker=BreakerSettings(enabled=False))])
    for _ in range(50):
        _call(fleet, A, DOWN, 0.0)
        _call(fleet, A, None, 0.0, ttft_s=99.0)
        _call(fleet, A, LIMITED, 0.0)
        fleet.begin(A, now=0.0)
        fleet.first_output(A, now=0.0, ttft_s=99.0)
        fleet.abandon(A, now=0.0, output_reported=True)
    assert fleet.report(A, alive=False, reason="down", now=0.0)
    assert fleet.report(A, alive=True, reason="", now=0.0)
    assert fleet.pool_statistics(now=0.0) == (PoolStatus(UpstreamName("a"), BreakerPhase.CLOSED),)
    assert (0, True) == (_status(fleet, A, now=50.0).trips, _status(fleet, A, now=50.0).available)


def test_a_pool_opens_when_most_of_its_replicas_fail_together() -> None:
    """Before each of them has failed often enough by itself; one dead replica of many is not the pool's failure."""
    fleet = Fleet([_pool(4)], rng=_Longest())
    for number in range(12):
        _call(fleet, ReplicaId(f"a/{number % 4}"), BROKEN if number % 4 == 0 else None, 0.0)
    for _ in range(40):
        _call(fleet, A, BROKEN, 0.5)
    assert fleet.pool_statistics(now=0.5)[0].breaker is BreakerPhase.CLOSED
    assert _chosen(fleet, now=0.5) is not None
    fleet = Fleet([_pool(4)], rng=_Longest())
    for number in range(10):
        _call(fleet, ReplicaId(f"a/{number % 4}"), BROKEN, 1.0)
    assert _chosen(fleet, now=1.5) is None
    status = _status(fleet, A, now=1.5)
    assert (BreakerPhase.CLOSED, ReplicaPhase.FAILING, False, 0.5) == (status.breaker, status.phase, status.available, status.back_in_s)
    assert status.why == "the whole pool: left alone for 0.5 s more: 10 of the last 10 calls failed"
    assert fleet.pool_statistics(now=1.5) == (
        PoolStatus(UpstreamName("a"), BreakerPhase.OPEN, "left alone for 0.5 s more: 10 of the last 10 calls failed", 0.5, 1),
    )
    assert fleet.wait_s(ROUTE, now=1.5) == 0.5
    for _ in range(2):
        assert _chosen(fleet, now=2.0) is not None
        fleet.begin(A, now=2.0)
    assert _chosen(fleet, now=2.0) is None
    fleet.abandon(A, now=2.0, began_at=2.0)
    fleet.end(A, None, now=2.1, began_at=2.0)
    _call(fleet, A, None, 2.1)
    assert fleet.pool_statistics(now=2.1)[0].breaker is BreakerPhase.CLOSED


def test_a_pool_whose_replicas_are_all_slow_lets_others_go_first() -> None:
    """Also when the first tokens are reported as they come, and when some replicas are dead."""
    for reported in (False, True):
        fleet = Fleet([_pool(4)], rng=_Longest())
        assert fleet.report(ReplicaId("a/3"), alive=False, reason="down", now=0.0)
        for number in range(10):
            replica = ReplicaId(f"a/{number % 3}")
            if not reported:
                _call(fleet, replica, None, 1.0, ttft_s=5.0)
                continue
            fleet.begin(replica, now=1.0)
            fleet.first_output(replica, now=1.0, ttft_s=5.0, began_at=1.0)
            fleet.end(replica, None, now=1.0, began_at=1.0, output_reported=True)
        assert fleet.pool_statistics(now=1.0)[0].breaker is BreakerPhase.SOFT_OPEN
        assert _choice(fleet, now=1.0) is not None
        assert fleet.observed_ttft_s(UpstreamName("a")) == 5.0


def test_a_long_stream_is_a_passed_probe_when_its_output_begins() -> None:
    """The others need not wait for its end; a failure later on still is one."""
    fleet = Fleet([_pool(1)], rng=_Longest())
    for _ in range(2):
        _call(fleet, A, DOWN, 0.0)
    for _ in range(2):
        fleet.begin(A, now=1.0)
        fleet.first_output(A, now=1.5, ttft_s=0.5, began_at=1.0)
    assert _status(fleet, A, now=1.5).breaker is BreakerPhase.CLOSED
    assert _chosen(fleet, now=1.5) == "a/0"
    fleet.end(A, None, now=90.0, began_at=1.0, output_reported=True)
    fleet.abandon(A, now=90.0, began_at=1.0, output_reported=True)
    assert (0, BreakerPhase.CLOSED) == (_status(fleet, A, now=90.0).in_flight, _status(fleet, A, now=90.0).breaker)


# ── what is observed ──────────────────────────────────────────────────────────


def test_first_tokens_are_observed_once_there_are_five() -> None:
    """The median of the last five minutes, so that one slow answer is not believed, and an old one is forgotten."""
    fleet = _fleet()
    for ttft_s in (0.1, 0.2, 0.3, 9.0):
        _call(fleet, A, None, 0.0, ttft_s=ttft_s)
    assert fleet.observed_ttft_s(UpstreamName("a")) is None
    fleet.begin(A2, now=0.0)
    fleet.first_output(A2, now=0.0, ttft_s=0.4)
    assert fleet.observed_ttft_s(UpstreamName("a")) == 0.3
    fleet.begin(B, now=301.0)
    assert fleet.observed_ttft_s(UpstreamName("a")) is None


def test_explain_says_of_each_replica_why_it_is_not_chosen() -> None:
    """Targets in order, with the model name that each would be sent."""
    fleet = _fleet()
    _call(fleet, A, LIMITED, 0.0)
    assert fleet.report(A2, alive=False, reason="down", now=0.0)
    first, second = fleet.explain(ROUTE, M, now=1.0)
    assert (0, "a", "m", False, "") == (first.rank, first.upstream, first.model, first.available, first.why)
    assert ["it answered 429 and asked for a pause", "it does not answer health checks"] == [each.why for each in first.replicas]
    assert (1, "b", "other", True) == (second.rank, second.upstream, second.model, second.available)


# ── reloads ───────────────────────────────────────────────────────────────────


def test_a_reload_keeps_what_is_known_of_replicas_that_stay() -> None:
    """Calls in flight across a reload are counted once, in both views."""
    old = _fleet()
    old.begin(A, now=0.0)
    update = Fleet([Replica(A, UpstreamName("a"), "vllm")], before=old)
    assert update.statistics(now=0.0)[0].in_flight == 1
    old.end(A, None, now=0.0)
    assert update.statistics(now=0.0)[0].in_flight == 0


def test_a_changed_address_is_another_server() -> None:
    """Its breaker, its 429 and its calls are not those of the one before."""
    old = Fleet([_pool(2)])
    for _ in range(2):
        _call(old, A, DOWN, 0.0)
    moved = _pool(2)
    moved = msgspec.structs.replace(moved, replicas=(msgspec.structs.replace(moved.replicas[0], address="http://new"), moved.replicas[1]))
    update = Fleet([moved], before=old)
    assert (0, BreakerPhase.CLOSED) == (update.statistics(now=0.0)[0].trips, update.statistics(now=0.0)[0].breaker)
    assert _status(Fleet([_pool(2)], before=old), A, now=0.0).breaker is BreakerPhase.OPEN


def test_a_reload_with_other_breaker_settings_keeps_breakers_open() -> None:
    """And one that turns them off forgets them; the fleet before is not touched, since the reload may still be refused."""
    old = Fleet([_pool(2)], rng=_Longest())
    for number in range(10):
        _call(old, ReplicaId(f"a/{number % 2}"), BROKEN, 0.0, ttft_s=None)
    assert old.report(A, alive=False, reason="down", now=0.0)
    other = Fleet([_pool(2, breaker=BreakerSettings(probes=1))], before=old)
    status = _status(other, A, now=0.5)
    assert (BreakerPhase.OPEN, "down", ReplicaPhase.AWAY) == (status.breaker, status.last_error, status.phase)
    assert other.pool_statistics(now=0.5)[0].breaker is BreakerPhase.OPEN
    off = Fleet([_pool(2, breaker=BreakerSettings(enabled=False))], before=old)
    assert _status(off, A2, now=0.5).breaker is BreakerPhase.CLOSED
    again = Fleet([_pool(2)], before=off)
    assert (0, 0) == (_status(again, A2, now=0.5).trips, again.pool_statistics(now=0.5)[0].trips)
    assert _status(old, A2, now=0.5).breaker is BreakerPhase.OPEN


def test_replicas_that_come_to_a_pool_share_its_turns_from_then_on() -> None:
    """They neither wait for the others' past nor make up for it."""
    old = Fleet([_pool(2, pick=Pick.WEIGHTED)])
    for _ in range(100):
        choice = old.choose(ROUTE, M, (), now=0.0, rng=Random(0))
        assert choice is not None
        _call(old, choice.replica.replica, None, 0.0)
    update = Fleet([_pool(3, pick=Pick.WEIGHTED)], before=old)
    taken = []
    for _ in range(30):
        choice = update.choose(ROUTE, M, (), now=0.0, rng=Random(0))
        assert choice is not None
        taken.append(choice.replica.replica)
        _call(update, choice.replica.replica, None, 0.0)
    assert [10, 10, 10] == [taken.count(ReplicaId(f"a/{index}")) for index in range(3)]


def test_plain_replicas_make_default_pools() -> None:
    """Each upstream one, in order."""
    pools = _fleet().pools
    assert (Pick.LEAST_IN_FLIGHT, BreakerSettings(), 2) == (
        pools[UpstreamName("a")].pick,
        pools[UpstreamName("a")].breaker,
        len(pools[UpstreamName("a")].replicas),
    )


@pytest.mark.parametrize("settings", [BreakerSection(), BreakerSection(ttft_s=None, probes=7)])
def test_settings_mean_the_same_in_the_file_and_in_the_policy(settings: BreakerSection) -> None:
    """Same fields, same defaults."""
    converted = msgspec.convert(settings, BreakerSettings, from_attributes=True)
    assert msgspec.structs.asdict(settings) == msgspec.structs.asdict(converted)
    assert BreakerSettings() == msgspec.convert(BreakerSection(), BreakerSettings, from_attributes=True)
