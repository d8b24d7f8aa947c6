"""Laws of the fleet and its breakers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import (
    BreakerPhase,
    BreakerSettings,
    Clock,
    FailureScope,
    Pick,
    Pool,
    Replica,
    Route,
    Target,
    UpstreamFailure,
)
from tidegate.policy.resilience.breaker import Breaker
from tidegate.policy.routing.affinity import MOST_LOAD
from tidegate.policy.routing.fleet import Fleet

M = ModelName("m")
A, B = UpstreamName("a"), UpstreamName("b")
ROUTE = Route("m", (Target(A), Target(B)))
TICK_S = 1 / 64  # sums of these are exact, so that a shifted epoch changes no comparison
CALLED = (
    UpstreamFailure(FailureScope.REPLICA, retryable=True, message="refused", connect=True),
    UpstreamFailure(FailureScope.REPLICA, retryable=True, message="500", status=500),
    UpstreamFailure(FailureScope.REPLICA, retryable=True, message="hung", clock=Clock.FIRST_TOKEN),
    UpstreamFailure(FailureScope.KEY, retryable=False, message="key", credentials=True),
)
IGNORED = (
    UpstreamFailure(FailureScope.KEY, retryable=True, message="429", rate_limited=True, retry_after_s=1.0),
    UpstreamFailure(FailureScope.REQUEST, retryable=False, message="400", status=400),
    UpstreamFailure(FailureScope.REQUEST, retryable=False, message="filtered", content_filter=True),
    UpstreamFailure(FailureScope.MODEL, retryable=False, message="404", status=404),
    UpstreamFailure(FailureScope.GATEWAY, retryable=True, message="full"),
)
QUICK = BreakerSettings(
    min_calls=4, slow_min_calls=4, slow_window_s=4.0, window_s=2.0, cooldown_s=0.5, max_cooldown_s=4.0, slow_start_s=2.0
)


class _Coarse(Random):
    """Draws whole 1024ths, so that sums of times are exact whatever the epoch."""

    def uniform(self, a: float, b: float) -> float:
        return int(super().uniform(a, b) * 1024) / 1024


class Move(msgspec.Struct, frozen=True):
    """Something happens after `ticks`; `which` selects a call that runs, or a replica."""

    kind: str
    ticks: int
    which: int
    failure: UpstreamFailure | None = None
    ttft_s: float | None = None


@st.composite
def histories(draw: st.DrawFn) -> list[Move]:
    """Give moves in phases, so that replicas go down and come back: what calls end with is drawn for each phase anew."""
    played: list[Move] = []
    for _ in range(draw(st.integers(1, 6))):
        endings = draw(st.sampled_from(((None,), CALLED, CALLED[:1], (None, *CALLED), IGNORED, (None, None, None, *IGNORED, *CALLED))))
        firsts = draw(st.sampled_from(((None,), (0.5,), (8.0,), (None, 0.5, 8.0))))
        slowest = draw(st.sampled_from((1, 8, 64)))
        phase = st.builds(
            Move,
            st.sampled_from(("choose", "choose", "choose", "choose", "end", "end", "end", "output", "abandon", "dead", "alive")),
            st.integers(1, slowest),
            st.integers(0, 50),
            st.sampled_from(endings),
            st.sampled_from(firsts),
        )
        played += draw(st.lists(phase, min_size=10, max_size=40))
    return played


moves = histories()
picks = st.sampled_from(list(Pick))


def _pools(pick: Pick) -> list[Pool]:
    def replicas(upstream: UpstreamName, count: int) -> tuple[Replica, ...]:
        return tuple(Replica(ReplicaId(f"{upstream}/{index}"), upstream, "vllm", weight=1.0 + index) for index in range(count))

    return [Pool(A, replicas(A, 3), pick, keeps_sessions=True, breaker=QUICK), Pool(B, replicas(B, 1), pick, breaker=QUICK)]


class _Call(msgspec.Struct):
    replica: ReplicaId
    began_at: float
    reported: bool = False


class World:
    """Plays moves on a fleet as a driver would, and writes down what was decided."""

    def __init__(self, pick: Pick, *, epoch: float = 0.0, look: Callable[[Fleet, float], object] | None = None) -> None:
        self.fleet = Fleet(_pools(pick), rng=_Coarse(1))
        self.now = epoch
        self.calls: list[_Call] = []
        self.trace: list[object] = []
        self._rng = Random(2)
        self._look = look

    def play(self, played: list[Move]) -> World:
        for move in played:
            self.now += move.ticks * TICK_S
            if self._look is not None:
                self._look(self.fleet, self.now)
            self._do(move)
            self._check()
        return self

    def finish(self) -> None:
        """End what runs."""
        while self.calls:
            self.now += TICK_S
            self._do(Move("end", 0, 0))

    def breakers(self) -> list[Breaker]:
        found = [seat.standing.breaker for seat in self.fleet._seats.values()]
        found += [pool.standing.breaker for pool in self.fleet._by_upstream.values()]
        return [breaker for breaker in found if breaker is not None]

    def _do(self, move: Move) -> None:
        fleet, now = self.fleet, self.now
        if move.kind == "choose":
            choice = fleet.choose(ROUTE, M, (), now=now, rng=self._rng, affinity=f"s{move.which}" if move.which % 3 else "")
            self.trace.append(choice.replica.replica if choice is not None else None)
            if choice is not None:
                self._may_begin(choice.replica)
                fleet.begin(choice.replica.replica, now=now)
                self.calls.append(_Call(choice.replica.replica, now))
            return
        if move.kind in ("dead", "alive"):
            replica = ReplicaId(f"a/{move.which % 4}")
            self.trace.append(fleet.report(replica, alive=move.kind == "alive", reason="x", now=now))
            return
        if not self.calls:
            return
        call = self.calls[move.which % len(self.calls)]
        if move.kind == "output":
            if not call.reported:
                call.reported = True
                fleet.first_output(call.replica, now=now, ttft_s=move.ttft_s or 0.1, began_at=call.began_at)
            return
        self.calls.remove(call)
        if move.kind == "end":
            fleet.end(call.replica, move.failure, now=now, began_at=call.began_at, output_reported=call.reported)
        else:
            fleet.abandon(call.replica, now=now, began_at=call.began_at, output_reported=call.reported)

    def _may_begin(self, replica: Replica) -> None:
        """Law: what is hard open is not chosen before its pause is over, nor beyond its probes while half open."""
        seat = self.fleet._seats[replica.replica]
        for breaker in (seat.standing.breaker, seat.pool.standing.breaker):
            if breaker is not None:
                assert breaker.phase_at(self.now) is not BreakerPhase.OPEN
                assert breaker.phase is not BreakerPhase.HALF_OPEN or breaker.probes < QUICK.probes
        assert seat.standing.dead is None
        assert not seat.standing.is_set_aside(self.now)

    def _check(self) -> None:
        """Law: calls in flight and probes are those that run."""
        running = Counter(call.replica for call in self.calls)
        for status in self.fleet.statistics(now=self.now):
            assert status.in_flight == running[status.replica]
        for name, seat in self.fleet._seats.items():
            breaker = seat.standing.breaker
            assert breaker is not None
            assert seat.standing.calm == (seat.standing.dead is None and breaker.phase is BreakerPhase.CLOSED)
            if breaker.phase is BreakerPhase.CLOSED:
                assert breaker.probes == 0
            elif breaker.phase in (BreakerPhase.HALF_OPEN, BreakerPhase.SOFT_HALF_OPEN):
                since = breaker._since
                assert since is not None
                probes = [call for call in self.calls if call.replica == name and call.began_at >= since and not call.reported]
                assert breaker.probes == len(probes)


@given(moves, picks)
def test_every_call_and_every_probe_is_ended_exactly_once(played: list[Move], pick: Pick) -> None:
    """Law: whatever the order of begin, output, end and abandon, in-flight calls and probes return to zero."""
    world = World(pick).play(played)
    world.finish()
    assert all(status.in_flight == 0 for status in world.fleet.statistics(now=world.now))
    assert all(breaker.probes == 0 for breaker in world.breakers())


@given(moves, picks)
def test_a_shifted_clock_changes_nothing(played: list[Move], pick: Pick) -> None:
    """Law: a policy that read a clock, or compared an instant with a constant, would show here."""
    assert World(pick).play(played).trace == World(pick, epoch=2.0**20).play(played).trace


@given(moves, picks)
def test_the_same_seed_gives_the_same_decisions(played: list[Move], pick: Pick) -> None:
    """Law: nothing but the facts and the given randomness decides."""
    assert World(pick).play(played).trace == World(pick).play(played).trace


def _look_around(fleet: Fleet, now: float) -> None:
    for at in (now - 5.0, now, now):
        fleet.choose(ROUTE, M, (), now=at, rng=Random(3), affinity="x")
        fleet.statistics(now=at)
        fleet.pool_statistics(now=at)
        fleet.explain(ROUTE, M, now=at)
        fleet.wait_s(ROUTE, now=at)
        fleet.is_rate_limited(ROUTE, now=at)
        fleet.observed_ttft_s(A)


@settings(max_examples=40)
@given(moves, picks)
def test_looking_changes_nothing(played: list[Move], pick: Pick) -> None:
    """Law: who asks early, late, or often is answered and leaves no trace."""
    assert World(pick).play(played).trace == World(pick, look=_look_around).play(played).trace


@given(st.lists(st.tuples(st.integers(0, 64), st.none() | st.sampled_from(IGNORED)), max_size=100))
def test_a_replica_with_only_limits_and_client_errors_never_trips(played: list[tuple[int, UpstreamFailure | None]]) -> None:
    """Law: 429, 400, 404, a content filter and our own bounds are no failures of a server."""
    fleet = Fleet(_pools(Pick.LEAST_IN_FLIGHT), rng=Random(1))
    now = 0.0
    for ticks, failure in played:
        now += ticks * TICK_S
        fleet.begin(ReplicaId("a/0"), now=now)
        fleet.end(ReplicaId("a/0"), failure, now=now, began_at=now)
    assert all(status.trips == 0 for status in fleet.statistics(now=now))
    assert all(status.trips == 0 for status in fleet.pool_statistics(now=now))


@given(st.integers(1, 5), st.lists(st.integers(0, 64), max_size=40))
def test_an_open_breaker_refuses_until_its_pause_is_over(doublings: int, gaps: list[int]) -> None:
    """Law: from a trip until three quarters of the pause at least nothing begins, however often one asks."""
    breaker = Breaker(QUICK)
    now = 0.0
    for _ in range(QUICK.connect_failures):
        breaker.fail(now=now, began_at=now, rng=Random(doublings), connect=True)
    for trip in range(doublings):
        pause = min(QUICK.max_cooldown_s, QUICK.cooldown_s * 2**trip)
        at = now
        for gap in gaps:
            at += gap * TICK_S
            assert not breaker.admits(at, soft=True) or at - now >= 0.75 * pause
        now += pause
        assert breaker.admits(now, soft=False)
        breaker.begin(now)
        breaker.fail(now=now, began_at=now, rng=Random(trip))
        assert breaker.phase is BreakerPhase.OPEN


# ── picks ─────────────────────────────────────────────────────────────────────


def _crowd(count: int, kind: Pick, weights: list[int] | None = None) -> Fleet:
    replicas = tuple(
        Replica(ReplicaId(f"a/{index}"), A, "vllm", weight=float(weights[index]) if weights else 1.0) for index in range(count)
    )
    return Fleet([Pool(A, replicas, kind, keeps_sessions=True)])


def _home(fleet: Fleet, session: str, avoid: frozenset[ReplicaId] = frozenset()) -> ReplicaId:
    choice = fleet.choose(ROUTE, M, avoid, now=0.0, rng=Random(0), affinity=session)
    assert choice is not None
    return choice.replica.replica


@given(st.integers(2, 12), st.integers(0, 11), st.lists(st.text(min_size=1), min_size=1, max_size=40))
def test_only_the_sessions_of_a_replica_that_leaves_move(count: int, leaving: int, sessions: list[str]) -> None:
    """Law: rendezvous hashing moves no session that it need not, and gives each back when the replica returns."""
    fleet = _crowd(count, Pick.LEAST_IN_FLIGHT)
    gone = ReplicaId(f"a/{leaving % count}")
    for session in sessions:
        before = _home(fleet, session)
        after = _home(fleet, session, frozenset({gone}))
        assert after != gone
        assert before in (gone, after)
        assert before == _home(fleet, session)


@given(st.integers(2, 8), st.lists(st.integers(0, 3), min_size=1, max_size=150))
def test_no_replica_gets_more_than_its_part_for_the_sake_of_a_session(count: int, sessions: list[int]) -> None:
    """Law: with sessions of any popularity no replica is given a call beyond 1.25 times the mean, but for a handful of calls."""
    fleet = _crowd(count, Pick.LEAST_IN_FLIGHT)
    for number, session in enumerate(sessions):
        replica = _home(fleet, f"s{session}")
        fleet.begin(replica, now=0.0)
        load = fleet._seats[replica].standing.in_flight
        assert load <= max(4, MOST_LOAD * (number + 1) / count)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 4))
def test_weighted_turns_are_exact_over_every_cycle(weights: list[int], cycles: int) -> None:
    """Law: in as many calls as the weights sum up to, each replica gets exactly its weight."""
    fleet = _crowd(len(weights), Pick.WEIGHTED, weights)
    for _ in range(cycles):
        taken: Counter[ReplicaId] = Counter()
        for _ in range(sum(weights)):
            choice = fleet.choose(ROUTE, M, (), now=0.0, rng=Random(0))
            assert choice is not None
            fleet.begin(choice.replica.replica, now=0.0)
            taken[choice.replica.replica] += 1
        assert weights == [taken[ReplicaId(f"a/{index}")] for index in range(len(weights))]
