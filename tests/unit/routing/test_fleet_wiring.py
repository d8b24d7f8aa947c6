"""What wiring makes of upstreams: pools for the fleet, figures and words for people."""

from __future__ import annotations

from tidegate.config.schema import AffinityName, Configuration, DialectName, LocalEngineSection, ReplicaSection, UpstreamSection
from tidegate.config.schema_resilience import BreakerSection
from tidegate.domain.units import ReplicaId, UpstreamName
from tidegate.domain.upstream import BreakerPhase, Pick, PoolStatus, ReplicaPhase, ReplicaStatus
from tidegate.wiring.parts import LOCAL_REPLICA, fleet_pools, upstream_detail, upstream_figures

A = UpstreamName("a")


def test_an_upstream_is_a_pool_of_its_addresses() -> None:
    """`base_url` is the first; weights, priorities, pick, affinity and breaker are what the file says."""
    upstream = UpstreamSection(
        dialect=DialectName.VLLM,
        base_url="http://10.0.0.1/v1",
        weight=2.0,
        replicas=(ReplicaSection(base_url="http://10.0.0.2/v1", priority=3),),
        pick=Pick.PEAK_EWMA,
        affinity=AffinityName.SESSION,
        breaker=BreakerSection(probes=5),
    )
    pool, local = fleet_pools(Configuration(upstreams={"a": upstream}))
    assert (A, Pick.PEAK_EWMA, True, 5) == (pool.upstream, pool.pick, pool.keeps_sessions, pool.breaker.probes)
    assert [("a/0", "http://10.0.0.1/v1", 2.0, 0), ("a/1", "http://10.0.0.2/v1", 1.0, 3)] == [
        (each.replica, each.address, each.weight, each.priority) for each in pool.replicas
    ]
    assert [LOCAL_REPLICA] == [each.replica for each in local.replicas]
    assert local.breaker.ttft_s is None


def test_a_disabled_engine_is_no_pool() -> None:
    """Then there is nothing to choose."""
    assert not fleet_pools(Configuration(local_engine=LocalEngineSection(enabled=False)))


def _status(index: int, phase: ReplicaPhase, breaker: BreakerPhase, *, why: str = "", error: str | None = None) -> ReplicaStatus:
    available = breaker is not BreakerPhase.OPEN
    return ReplicaStatus(ReplicaId(f"a/{index}"), A, phase, 2, error, breaker=breaker, available=available, why=why, trips=index)


def test_figures_count_replicas_by_their_breakers() -> None:
    """Both kinds of half open are one figure; trips are those of the replicas and of the pool."""
    statuses = [_status(index, ReplicaPhase.READY, breaker) for index, breaker in enumerate(BreakerPhase)]
    levels, counters = upstream_figures(statuses, PoolStatus(A, BreakerPhase.CLOSED, trips=4))
    assert {
        "in_flight": 10,
        "replicas": 5,
        "replicas_available": 4,
        "replicas_drained": 0,
        "breaker_open": 1,
        "breaker_soft_open": 1,
        "breaker_half_open": 2,
    } == levels
    assert {"trips": 14} == counters


def test_the_words_for_an_upstream_name_its_replicas_only_where_there_are_several() -> None:
    """The cause comes with the phase."""
    ready = _status(0, ReplicaPhase.READY, BreakerPhase.CLOSED)
    down = _status(1, ReplicaPhase.FAILING, BreakerPhase.OPEN, why="left alone", error="refused")
    assert upstream_detail([ready]) == "ready"
    assert upstream_detail([down]) == "failing: left alone, refused"
    assert upstream_detail([ready, down]) == "0 ready; 1 failing: left alone, refused"
