"""How one of several free replicas is picked, and how sessions keep theirs."""

from __future__ import annotations

from collections import Counter
from random import Random

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import Clock, FailureScope, Pick, Pool, Replica, Route, Target, UpstreamFailure
from tidegate.policy.routing.affinity import LEAST_BOUND, draw, seed_of
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.latency import PeakEwma, RecentFirsts
from tidegate.policy.routing.standing import PoolStanding, Standing

A = UpstreamName("a")
ROUTE = Route("m", (Target(A),))
REFUSED = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="no", status=500)
HUNG = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="slow", clock=Clock.FIRST_TOKEN)


def _fleet(kind: Pick, weights: tuple[float, ...], priorities: tuple[int, ...] = (), *, keeps_sessions: bool = False) -> Fleet:
    replicas = tuple(
        Replica(ReplicaId(f"a/{index}"), A, "vllm", weight=weight, priority=priorities[index] if priorities else 0)
        for index, weight in enumerate(weights)
    )
    return Fleet([Pool(A, replicas, kind, keeps_sessions)])


def _take(fleet: Fleet, *, now: float = 0.0, rng: Random | None = None, affinity: str = "", avoid: tuple[ReplicaId, ...] = ()) -> ReplicaId:
    choice = fleet.choose(ROUTE, ModelName("m"), avoid, now=now, rng=rng or Random(0), affinity=affinity)
    assert choice is not None
    fleet.begin(choice.replica.replica, now=now)
    return choice.replica.replica


def _serve(fleet: Fleet, seconds: float, replica: ReplicaId, *, now: float) -> None:
    fleet.begin(replica, now=now - seconds)
    fleet.end(replica, None, now=now, began_at=now - seconds)


def test_a_quiet_pool_is_used_in_turn() -> None:
    """Where no replica is busier than another, none is forgotten."""
    for kind in (Pick.LEAST_IN_FLIGHT, Pick.WEIGHTED):
        fleet = _fleet(kind, (1.0, 1.0, 1.0))
        taken = []
        for _ in range(6):
            taken.append(_take(fleet))
            fleet.end(taken[-1], None, now=0.0)
        assert taken == ["a/0", "a/1", "a/2", "a/0", "a/1", "a/2"]


def test_calls_in_flight_are_in_proportion_to_weights() -> None:
    """The fewest calls for the weight."""
    fleet = _fleet(Pick.LEAST_IN_FLIGHT, (3.0, 1.0))
    assert {"a/0": 30, "a/1": 10} == Counter(_take(fleet) for _ in range(40))


def test_weighted_turns_are_exact_over_a_cycle_and_spread() -> None:
    """Five, one and one of seven; the heavy one is not used five times on end."""
    fleet = _fleet(Pick.WEIGHTED, (5.0, 1.0, 1.0))
    taken = "".join(_take(fleet)[-1] for _ in range(14))
    assert taken[:7] == taken[7:]
    assert {"0": 5, "1": 1, "2": 1} == Counter(taken[:7])
    assert "0000" not in taken[:7]


def test_a_replica_that_was_away_does_not_make_up_for_it() -> None:
    """It gets its turns from now on, not those that it missed."""
    fleet = _fleet(Pick.WEIGHTED, (1.0, 1.0))
    for _ in range(50):
        assert _take(fleet, avoid=(ReplicaId("a/1"),)) == "a/0"
    assert {"a/0": 5, "a/1": 5} == Counter(_take(fleet) for _ in range(10))


def test_two_choices_takes_the_less_loaded_of_two_drawn() -> None:
    """Never the busiest of three, each of the others sometimes."""
    fleet = _fleet(Pick.TWO_CHOICES, (1.0, 1.0, 1.0))
    for _ in range(5):
        fleet.begin(ReplicaId("a/0"), now=0.0)
    rng = Random(7)
    taken: Counter[ReplicaId] = Counter()
    for _ in range(60):
        replica = _take(fleet, rng=rng)
        taken[replica] += 1
        fleet.abandon(replica, now=0.0)
    assert taken[ReplicaId("a/0")] == 0
    assert min(taken[ReplicaId("a/1")], taken[ReplicaId("a/2")]) > 10


def test_the_quicker_replica_gets_more() -> None:
    """Latency times calls: one that takes twice as long gets half."""
    fleet = _fleet(Pick.PEAK_EWMA, (1.0, 1.0))
    _serve(fleet, 1.0, ReplicaId("a/0"), now=10.0)
    _serve(fleet, 2.0, ReplicaId("a/1"), now=10.0)
    assert {"a/0": 20, "a/1": 10} == Counter(_take(fleet, now=10.0) for _ in range(30))


def test_a_stream_is_as_quick_as_its_first_token() -> None:
    """However long it goes on."""
    fleet = _fleet(Pick.PEAK_EWMA, (1.0, 1.0))
    fleet.begin(ReplicaId("a/0"), now=0.0)
    fleet.first_output(ReplicaId("a/0"), now=1.0, ttft_s=1.0, began_at=0.0)
    fleet.end(ReplicaId("a/0"), None, now=60.0, began_at=0.0, output_reported=True)
    fleet.begin(ReplicaId("a/1"), now=0.0)
    fleet.first_output(ReplicaId("a/1"), now=2.0, ttft_s=2.0, began_at=0.0)
    fleet.end(ReplicaId("a/1"), None, now=60.0, began_at=0.0, output_reported=True)
    assert _take(fleet, now=60.0) == "a/0"


def test_a_quick_refusal_is_no_quick_answer() -> None:
    """A call that ran into a clock was slow; one that was refused at once says nothing of speed, nor does one of unknown age."""
    fleet = _fleet(Pick.PEAK_EWMA, (1.0, 1.0))
    _serve(fleet, 1.0, ReplicaId("a/0"), now=10.0)
    _serve(fleet, 2.0, ReplicaId("a/1"), now=10.0)
    fleet.begin(ReplicaId("a/1"), now=10.0)
    fleet.end(ReplicaId("a/1"), REFUSED, now=10.0, began_at=10.0)
    fleet.begin(ReplicaId("a/1"), now=10.0)
    fleet.end(ReplicaId("a/1"), None, now=10.0)
    assert _take(fleet, now=10.0) == "a/0"
    fleet.begin(ReplicaId("a/0"), now=10.0)
    fleet.end(ReplicaId("a/0"), HUNG, now=70.0, began_at=10.0)
    assert _take(fleet, now=70.0) == "a/1"


def test_a_latency_rises_at_once_and_falls_with_time() -> None:
    """An unknown one costs nothing until a call waits for it."""
    latency = PeakEwma()
    assert (0.0, 120.0) == (latency.cost(0, now=0.0), latency.cost(2, now=0.0))
    latency.observe(1.0, now=0.0)
    latency.observe(4.0, now=0.0)
    assert latency.cost(0, now=0.0) == 4.0
    latency.observe(1.0, now=0.0)
    assert latency.cost(0, now=0.0) == 4.0
    latency.observe(1.0, now=10.0)
    assert 2.0 < latency.cost(0, now=10.0) < 2.2
    assert latency.cost(0, now=100.0) < 0.001
    assert latency.cost(0, now=5.0) == latency.cost(0, now=10.0)
    assert repr(PeakEwma()) == "PeakEwma(None)"


def test_higher_numbers_wait_for_lower_ones_to_be_gone() -> None:
    """However busy those are."""
    fleet = _fleet(Pick.LEAST_IN_FLIGHT, (1.0, 1.0, 1.0), (0, 0, 5))
    assert {"a/0": 5, "a/1": 5} == Counter(_take(fleet) for _ in range(10))
    assert fleet.report(ReplicaId("a/0"), alive=False, reason="down", now=0.0)
    assert fleet.report(ReplicaId("a/1"), alive=False, reason="down", now=0.0)
    assert _take(fleet) == "a/2"


def test_a_session_keeps_its_replica() -> None:
    """Different sessions are spread; without one, or without the setting, the pick decides."""
    fleet = _fleet(Pick.LEAST_IN_FLIGHT, (1.0, 1.0, 1.0), keeps_sessions=True)
    homes = {}
    for number in range(60):
        session = f"order-{number}"
        homes[session] = _take(fleet, affinity=session)
        fleet.abandon(homes[session], now=0.0)
    assert set(homes.values()) == {"a/0", "a/1", "a/2"}
    for session, home in homes.items():
        assert home == _take(fleet, affinity=session)
        fleet.abandon(home, now=0.0)
    plain = _fleet(Pick.LEAST_IN_FLIGHT, (1.0, 1.0))
    assert [_take(plain, affinity="s"), _take(plain, affinity="s")] == ["a/0", "a/1"]
    assert _take(fleet) != _take(fleet)


def test_a_crowded_replica_is_passed_over_even_by_its_own_session() -> None:
    """One loud session cannot take a replica for itself; a few calls at a time are no crowd."""
    fleet = _fleet(Pick.LEAST_IN_FLIGHT, (1.0, 1.0, 1.0), keeps_sessions=True)
    taken = [_take(fleet, affinity="loud") for _ in range(30)]
    assert len(set(taken[:LEAST_BOUND])) == 1
    counts = Counter(taken)
    assert max(counts.values()) <= 1.25 * 30 / 3 + 1
    assert len(counts) == 3


def test_a_heavier_replica_has_more_sessions() -> None:
    """In proportion to the weights."""
    fleet = _fleet(Pick.LEAST_IN_FLIGHT, (3.0, 1.0), keeps_sessions=True)
    counts: Counter[str] = Counter()
    for number in range(2000):
        replica = _take(fleet, affinity=f"s{number}")
        counts[replica] += 1
        fleet.abandon(replica, now=0.0)
    assert 1400 < counts["a/0"] < 1600


def test_hashes_are_the_same_in_every_process() -> None:
    """Workers and nodes must agree without talking."""
    assert seed_of("order-1") == 0x2599000E8C1B023D
    assert draw(seed_of("order-1"), seed_of("a/0"), 1.0) == draw(seed_of("order-1"), seed_of("a/0"), 2.0) * 2.0


def test_states_say_what_they_are() -> None:
    """For whoever debugs."""
    assert repr(Standing("", None, 0.0)) == "Standing(0 in flight, calm, None)"
    down = Standing("", None, 0.0)
    down.dead = "no"
    down.settle()
    assert repr(down) == "Standing(0 in flight, not calm, None)"
    assert repr(PoolStanding(None).firsts) == "RecentFirsts(0)"
    assert RecentFirsts().median_s(now=0.0) is None
