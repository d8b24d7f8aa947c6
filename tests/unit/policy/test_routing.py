"""Routes and the choice of a replica."""

from __future__ import annotations

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import FailureScope, Replica, ReplicaPhase, ReplicaStatus, Route, Target, UpstreamFailure
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable

A, B = ReplicaId("a/0"), ReplicaId("b/0")
A2 = ReplicaId("a/1")
M = ModelName("m")
ROUTE = Route("m", (Target(UpstreamName("a")), Target(UpstreamName("b"), ModelName("other"))))
DOWN = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="connection refused")


def _fleet(*, before: Fleet | None = None) -> Fleet:
    return Fleet(
        [Replica(A, UpstreamName("a"), "vllm"), Replica(A2, UpstreamName("a"), "vllm"), Replica(B, UpstreamName("b"), "openai")],
        before=before,
    )


def _choice(fleet: Fleet, avoid: set[ReplicaId] | None = None, *, now: float = 0.0) -> tuple[str, str, int] | None:
    choice = fleet.choose(ROUTE, M, avoid or set(), now=now)
    return None if choice is None else (choice.replica.replica, choice.model, choice.rank)


def _available(fleet: Fleet, *, now: float) -> bool:
    return _choice(fleet, {A2, B}, now=now) is not None


def test_the_first_matching_pattern_wins_and_answers_are_remembered() -> None:
    """Order is the configuration's; a second look gives the same."""
    exact, wide = Route("qwen3", ()), Route("qwen*", ())
    table = RouteTable([exact, wide], ["qwen3"])
    assert table.match("qwen3") is exact
    assert table.match("qwen3") is exact
    assert table.match("qwen-max") is wide
    assert table.match("gpt") is None
    assert repr(table) == "RouteTable(qwen3, qwen*)"


def test_invented_model_names_do_not_grow_the_memory_for_ever() -> None:
    """Names chosen by clients cannot fill the memory: the answers kept are bounded."""
    table = RouteTable([Route("*", ())], [])
    for number in range(10_000):
        table.match(f"invented-{number}")
        table.allows((f"p{number}",), "m")
    assert len(table._memory) <= 4096
    assert len(table._permissions) <= 4096


def test_a_caller_may_use_the_models_its_patterns_name() -> None:
    """A star allows all; patterns allow what they match; none allow nothing."""
    table = RouteTable([], [])
    assert table.allows(("*",), "anything")
    assert table.allows(("qwen*", "gpt-4o"), "qwen3")
    assert table.allows(("qwen*", "gpt-4o"), "gpt-4o")
    assert not table.allows(("qwen*", "gpt-4o"), "gpt-4")
    assert not table.allows((), "m")


def test_the_preferred_target_is_used_while_it_can_serve() -> None:
    """Within a target the replica with fewer calls in flight; the stand-by with its own model name only when the first is out."""
    fleet = _fleet()
    assert _choice(fleet) == ("a/0", "m", 0)
    fleet.begin(A)
    assert _choice(fleet) == ("a/1", "m", 0)
    assert _choice(fleet, {A, A2}) == ("b/0", "other", 1)
    assert _choice(fleet, {A, A2, B}) is None
    fleet.abandon(A)
    assert repr(fleet) == "Fleet(a/0: 0, a/1: 0, b/0: 0)"


def test_a_replica_that_answers_429_is_set_aside_for_its_retry_after() -> None:
    """Its own wish is believed between a second and a minute."""
    fleet = _fleet()
    limited = UpstreamFailure(FailureScope.KEY, retryable=True, message="slow down", rate_limited=True, retry_after_s=20.0)
    fleet.begin(A)
    fleet.end(A, limited, now=0.0)
    assert not _available(fleet, now=19.9)
    assert _available(fleet, now=20.0)
    assert fleet.wait_s(ROUTE, now=5.0) == 15.0
    assert fleet.wait_s(ROUTE, now=25.0) is None
    fleet.begin(A)
    fleet.end(A, UpstreamFailure(FailureScope.KEY, retryable=True, message="x", rate_limited=True), now=30.0)
    assert not _available(fleet, now=30.9)
    fleet.begin(A)
    fleet.end(A, UpstreamFailure(FailureScope.KEY, retryable=True, message="x", rate_limited=True, retry_after_s=9999.0), now=40.0)
    assert _available(fleet, now=100.0)


def test_readiness_tells_each_phase() -> None:
    """Unused, ready, failing for a while, set aside, warming, away."""
    fleet = _fleet()

    def phase(now: float = 0.0) -> ReplicaPhase:
        return next(status.phase for status in fleet.statistics(now=now) if status.replica == A)

    assert phase() is ReplicaPhase.UNUSED
    fleet.begin(A)
    fleet.end(A, None, now=0.0)
    assert phase() is ReplicaPhase.READY
    fleet.begin(A)
    fleet.end(A, DOWN, now=1.0)
    assert phase(2.0) is ReplicaPhase.FAILING
    assert fleet.statistics(now=2.0)[0] == ReplicaStatus(A, UpstreamName("a"), ReplicaPhase.FAILING, 0, "connection refused")
    assert phase(12.0) is ReplicaPhase.READY
    fleet.mark(A, present=True, warm=False)
    assert phase(12.0) is ReplicaPhase.WARMING
    fleet.mark(A, present=False, warm=False, last_error="exited")
    assert phase(12.0) is ReplicaPhase.AWAY
    assert not _available(fleet, now=12.0)
    fleet.mark(A, present=True, warm=True)
    fleet.begin(A)
    fleet.end(A, UpstreamFailure(FailureScope.KEY, retryable=True, message="x", rate_limited=True), now=20.0)
    assert phase(20.5) is ReplicaPhase.SET_ASIDE


def test_a_fault_of_the_request_says_nothing_about_the_replica() -> None:
    """A 400 leaves the replica as it was."""
    fleet = _fleet()
    fleet.begin(A)
    fleet.end(A, UpstreamFailure(FailureScope.REQUEST, retryable=False, message="bad"), now=0.0)
    assert fleet.statistics(now=0.0)[0].phase is ReplicaPhase.READY


def test_a_reload_keeps_what_is_known_of_replicas_that_stay() -> None:
    """Calls in flight across a reload are counted once, in both views."""
    old = _fleet()
    old.begin(A)
    update = Fleet([Replica(A, UpstreamName("a"), "vllm")], before=old)
    assert update.statistics(now=0.0)[0].in_flight == 1
    old.end(A, None, now=0.0)
    assert update.statistics(now=0.0)[0].in_flight == 0
