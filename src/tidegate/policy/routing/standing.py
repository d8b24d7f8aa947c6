"""What is known of a replica and of a pool while they live, and where each replica sits in its pool.

A `Standing` outlives a reload; a `Seat` and a `PoolSeats` belong to one configuration. Invariants: `in_flight` of a standing is the number
of calls begun and not ended; `calm` is true exactly when nothing but a set-aside time can keep its replica from being chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.domain.upstream import BreakerPhase, BreakerSettings, Pick, Pool, Replica
from tidegate.policy.resilience.breaker import Breaker
from tidegate.policy.routing.affinity import seed_of
from tidegate.policy.routing.latency import PeakEwma, RecentFirsts


class Standing:
    """One replica's life."""

    __slots__ = (
        "address",
        "breaker",
        "calm",
        "dead",
        "doubted",
        "drained",
        "failed_at",
        "in_flight",
        "last_error",
        "latency",
        "present",
        "refuses_usage_option",
        "set_aside_until",
        "turn",
        "used",
        "warm",
    )

    def __init__(self, address: str, breaker: Breaker | None, turn: float) -> None:
        self.address = address
        self.breaker = breaker
        self.in_flight = 0
        self.set_aside_until: float | None = None
        self.present = True
        self.warm = True
        self.dead: str | None = None
        """Why health checks, here or on another node, hold it for dead."""
        self.doubted = False
        """Its last health check failed: others go first."""
        self.drained = False
        """An operator took it out of service."""
        self.used = False
        self.failed_at: float | None = None
        self.last_error: str | None = None
        self.refuses_usage_option = False
        self.latency = PeakEwma()
        self.turn = turn
        """When it is its turn, on its pool's clock."""
        self.calm = True
        self.settle()

    def __repr__(self) -> str:
        return f"Standing({self.in_flight} in flight, {'calm' if self.calm else 'not calm'}, {self.breaker!r})"

    def continued(self, settings: BreakerSettings | None) -> Standing:
        """Make one of other breaker settings that knows what this one does, but for the calls that run."""
        heir = Standing(self.address, _continued(self.breaker, settings), self.turn)
        heir.set_aside_until, heir.present, heir.warm, heir.dead = self.set_aside_until, self.present, self.warm, self.dead
        heir.used, heir.failed_at, heir.last_error, heir.doubted = self.used, self.failed_at, self.last_error, self.doubted
        heir.refuses_usage_option, heir.latency, heir.drained = self.refuses_usage_option, self.latency, self.drained
        heir.settle()
        return heir

    def settle(self) -> None:
        """Bring `calm` up to date after a change."""
        breaker = self.breaker
        sound = self.present and self.warm and self.dead is None and not self.doubted and not self.drained
        self.calm = sound and (breaker is None or breaker.phase is BreakerPhase.CLOSED)

    def is_set_aside(self, now: float) -> bool:
        return self.set_aside_until is not None and now < self.set_aside_until

    def available(self, now: float, *, soft: bool) -> bool:
        """Tell whether a call may begin; `soft` as in `Breaker.admits`."""
        if self.is_set_aside(now):
            return False
        if self.calm:
            return True
        if not self.present or not self.warm or self.drained or self.dead is not None or (self.doubted and not soft):
            return False
        return self.breaker is None or self.breaker.admits(now, soft=soft)

    def failing(self, now: float) -> bool:
        """Tell whether it is down or fails now, as a pool wants to know that looks for what is widespread."""
        breaker = self.breaker
        return self.dead is not None or not self.present or (breaker is not None and breaker.failing(now))


class PoolStanding:
    """What outlives a reload of a pool as a whole."""

    __slots__ = ("breaker", "clock", "firsts")

    def __init__(self, breaker: Breaker | None) -> None:
        self.breaker = breaker
        self.clock = 0.0
        """Goes on with each call by the turn that it took (see `policy.routing.pick`)."""
        self.firsts = RecentFirsts()

    def continued(self, settings: BreakerSettings | None) -> PoolStanding:
        heir = PoolStanding(_continued(self.breaker, settings, whole_pool=True))
        heir.clock, heir.firsts = self.clock, self.firsts
        return heir


class Seat:
    """A replica in its pool, under one configuration."""

    __slots__ = ("pool", "replica", "seed", "standing", "weight")

    def __init__(self, replica: Replica, standing: Standing, pool: PoolSeats) -> None:
        self.replica = replica
        self.standing = standing
        self.pool = pool
        self.weight = replica.weight
        self.seed = seed_of(replica.address or replica.replica)

    def weight_at(self, now: float) -> float:
        """Give its weight; after a recovery it grows back to the whole."""
        breaker = self.standing.breaker
        return self.weight if breaker is None or breaker.recovered_at is None else self.weight * breaker.share(now)

    def load(self, now: float) -> float:
        """Give the calls it would have with one more, for each unit of its weight."""
        return (self.standing.in_flight + 1) / self.weight_at(now)

    def turn(self) -> float:
        """Give its turn: one that was not to be had for a while does not make up for it."""
        return max(self.standing.turn, self.pool.standing.clock)


class PoolSeats:
    """The seats of one upstream, in classes of equal priority, lowest number first."""

    __slots__ = ("classes", "keeps_sessions", "last_resort", "measures", "only", "pick", "seats", "slow_after_s", "standing", "upstream")

    def __init__(self, pool: Pool, standing: PoolStanding) -> None:
        self.upstream = pool.upstream
        self.pick = pool.pick
        self.measures = pool.pick is Pick.PEAK_EWMA
        self.keeps_sessions = pool.keeps_sessions
        self.last_resort = pool.last_resort
        self.slow_after_s = pool.breaker.ttft_s if pool.breaker.enabled else None
        self.standing = standing
        self.seats: list[Seat] = []
        self.classes: list[list[Seat]] = []
        self.only: Seat | None = None
        """The seat of a pool that has one."""

    def fill(self, seats: Sequence[Seat]) -> None:
        self.seats = list(seats)
        priorities = sorted({seat.replica.priority for seat in seats})
        self.classes = [[seat for seat in seats if seat.replica.priority == priority] for priority in priorities]
        self.only = self.seats[0] if len(self.seats) == 1 else None

    def is_widespread(self, now: float) -> bool:
        """Tell whether most replicas fail, each by itself."""
        failing = 0
        for seat in self.seats:
            if seat.standing.failing(now):
                failing += 1
        return 2 * failing > len(self.seats)

    def free(self, seats: Sequence[Seat], avoid: Collection[str], now: float, *, soft: bool) -> list[Seat]:
        return [seat for seat in seats if seat.replica.replica not in avoid and seat.standing.available(now, soft=soft)]


def stand(replica: Replica, pool: Pool, clock: float, before: Standing | None) -> Standing:
    """Give what is known of a replica; another server under the same name is not known."""
    wanted = pool.breaker if pool.breaker.enabled else None
    if before is None or before.address != replica.address:
        return Standing(replica.address, _continued(None, wanted), clock + 0.5 / replica.weight)
    return before if _settings_of(before.breaker) == wanted else before.continued(wanted)


def stand_together(pool: Pool, before: PoolStanding | None) -> PoolStanding:
    """Give what is known of a pool. One with a single replica needs no breaker of its own."""
    wanted = pool.breaker if pool.breaker.enabled and len(pool.replicas) > 1 else None
    if before is None:
        return PoolStanding(_continued(None, wanted, whole_pool=True))
    return before if _settings_of(before.breaker) == wanted else before.continued(wanted)


def _settings_of(breaker: Breaker | None) -> BreakerSettings | None:
    return breaker.settings if breaker is not None else None


def _continued(breaker: Breaker | None, settings: BreakerSettings | None, *, whole_pool: bool = False) -> Breaker | None:
    if settings is None:
        return None
    return breaker.continued(settings) if breaker is not None else Breaker(settings, whole_pool=whole_pool)
