"""What an operator has taken out of service is not chosen, however well it is."""

from __future__ import annotations

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import BreakerSettings, Pool, Replica, ReplicaPhase, Route, Target
from tidegate.policy.routing.fleet import Fleet

A, B, C = ReplicaId("a/0"), ReplicaId("a/1"), ReplicaId("b/0")
M = ModelName("m")
ROUTE = Route("m", (Target(UpstreamName("a")), Target(UpstreamName("b"))))


def _fleet(*, before: Fleet | None = None, breaker: BreakerSettings | None = None) -> Fleet:
    settings = breaker or BreakerSettings()
    a = Pool(UpstreamName("a"), (Replica(A, UpstreamName("a"), "vllm"), Replica(B, UpstreamName("a"), "vllm")), breaker=settings)
    return Fleet([a, Pool(UpstreamName("b"), (Replica(C, UpstreamName("b"), "vllm"),), breaker=settings)], before=before)


def _chosen(fleet: Fleet, now: float = 0.0) -> str | None:
    choice = fleet.choose(ROUTE, M, (), now=now)
    return choice.replica.replica if choice is not None else None


def test_a_drained_replica_is_left_to_its_running_calls() -> None:
    """Others of its pool go on; it says why, and takes up work again when it is enabled."""
    fleet = _fleet()
    fleet.begin(A, now=0.0)
    fleet.drain([A])
    assert [B, B] == [_chosen(fleet), _chosen(fleet)]
    status = fleet.statistics(now=0.0)[0]
    assert (ReplicaPhase.DRAINED, 1, False, "an operator took it out of service") == (
        status.phase,
        status.in_flight,
        status.available,
        status.why,
    )
    assert status.back_in_s is None
    fleet.end(A, None, now=1.0)
    fleet.drain([])
    again = fleet.choose(ROUTE, M, (B,), now=2.0)
    assert again is not None
    assert A == again.replica.replica


def test_a_drained_upstream_leaves_its_requests_to_the_next_target() -> None:
    """With nothing left the route has nobody, and nobody knows for how long."""
    fleet = _fleet()
    fleet.drain(["a"])
    assert C == _chosen(fleet)
    fleet.drain(["a", "b"])
    assert _chosen(fleet) is None
    assert fleet.wait_s(ROUTE, now=0.0) is None


def test_a_reload_forgets_nothing_of_it() -> None:
    """Neither with the same breakers nor with others."""
    fleet = _fleet()
    fleet.drain(["a"])
    assert C == _chosen(_fleet(before=fleet))
    assert C == _chosen(_fleet(before=fleet, breaker=BreakerSettings(cooldown_s=2.0)))


def test_draining_is_no_failure() -> None:
    """A drained replica does not count towards a pool that fails as a whole."""
    fleet = _fleet()
    fleet.drain([A])
    assert [0, 0] == [status.trips for status in fleet.pool_statistics(now=0.0)]
    assert not fleet._seats[A].standing.failing(0.0)
