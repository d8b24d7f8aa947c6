"""The state of every replica, and the choice among a route's targets: filter, then score, then pick.

A route's targets are tried in order, inside a pool the lowest class of priority that has a free replica, among those the pool's pick. Two
rounds: first without what a soft breaker says others should go before, then with it. What a hard breaker, a 429, a health check or a
supervisor holds back is not chosen in either.

Invariants: `in_flight` of a replica returns to zero when every attempt begun with `begin` was closed with `end` or `abandon`; `choose` and
the other looks change nothing; a pool of one replica whose breaker is closed costs one test.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import (
    Choice,
    Clock,
    FailureScope,
    Pool,
    PoolStatus,
    Replica,
    ReplicaStatus,
    Route,
    TargetView,
    UpstreamFailure,
)
from tidegate.policy.routing.fleet_view import pool_status, replica_status, seat_wait_s, target_view
from tidegate.policy.routing.pick import keep_session, pick, take
from tidegate.policy.routing.standing import PoolSeats, Seat, Standing, stand, stand_together

_LONGEST_SET_ASIDE_S = 60.0  # an upstream's Retry-After is believed up to here
_SHORTEST_SET_ASIDE_S = 1.0


class Fleet:
    """All replicas of one configuration. States outlive a reload for replicas that stay.

    A call that began at `began_at` says so when it ends: breakers count it only in the phase it began in, and know a probe by it.
    """

    def __init__(self, pools: Collection[Pool] | Collection[Replica], *, before: Fleet | None = None, rng: Random | None = None) -> None:
        self.pools: Mapping[UpstreamName, Pool] = {pool.upstream: pool for pool in _as_pools(pools)}
        self.replicas: Mapping[ReplicaId, Replica] = {each.replica: each for pool in self.pools.values() for each in pool.replicas}
        self._rng = rng if rng is not None else Random(0)  # noqa: S311  jitter of pauses; wiring gives a seed of its own
        self._by_upstream: dict[UpstreamName, PoolSeats] = {}
        self._seats: dict[ReplicaId, Seat] = {}
        self._latest = 0.0  # the last time a call began: what is recent is measured from it
        for pool in self.pools.values():
            self._add(pool, before)

    def _add(self, pool: Pool, before: Fleet | None) -> None:
        known = before._by_upstream.get(pool.upstream) if before is not None else None  # noqa: SLF001  the same class
        together = PoolSeats(pool, stand_together(pool, known.standing if known is not None else None))
        seats = []
        for replica in pool.replicas:
            was = before._seats.get(replica.replica) if before is not None else None  # noqa: SLF001  the same class
            standing = stand(replica, pool, together.standing.clock, was.standing if was is not None else None)
            seats.append(Seat(replica, standing, together))
        together.fill(seats)
        self._by_upstream[pool.upstream] = together
        for seat in seats:
            self._seats[seat.replica.replica] = seat

    def __repr__(self) -> str:
        return f"Fleet({', '.join(f'{name}: {seat.standing.in_flight}' for name, seat in self._seats.items())})"

    # ── the choice ────────────────────────────────────────────────────────────

    def choose(
        self, route: Route, model: ModelName, avoid: Collection[ReplicaId], *, now: float, rng: Random | None = None, affinity: str = ""
    ) -> Choice | None:
        """Pick a replica that is not in `avoid` from the first target that has one.

        `affinity` is the session of the request; `rng` is drawn from by `two_choices` only, without it the fleet's own is.
        """
        for rank, target in enumerate(route.targets):
            pool = self._by_upstream.get(target.upstream)
            if pool is not None and not (rank and pool.last_resort):
                only = pool.only
                if only is not None and only.standing.calm and only.standing.set_aside_until is None:
                    if only.replica.replica not in avoid:
                        return Choice(only.replica, target.model or model, rank)
                else:
                    seat = _choose_in(pool, avoid, now, rng or self._rng, affinity, soft=False)
                    if seat is not None:
                        return Choice(seat.replica, target.model or model, rank)
        return self._choose_last(route, model, avoid, now, rng or self._rng, affinity)

    def _choose_last(
        self, route: Route, model: ModelName, avoid: Collection[ReplicaId], now: float, rng: Random, affinity: str
    ) -> Choice | None:
        """Take what others should go before, since there are no others; a last resort after all."""
        for last_resort in (False, True):
            for rank, target in enumerate(route.targets):
                pool = self._by_upstream.get(target.upstream)
                if pool is None or (rank > 0 and pool.last_resort) is not last_resort:
                    continue
                seat = _choose_in(pool, avoid, now, rng, affinity, soft=True)
                if seat is not None:
                    return Choice(seat.replica, target.model or model, rank)
        return None

    # ── calls ─────────────────────────────────────────────────────────────────

    def begin(self, replica: ReplicaId, *, now: float) -> None:
        """Count a call that begins; while a breaker is half open it is a probe."""
        self._latest = now
        seat = self._seats[replica]
        standing, pool = seat.standing, seat.pool
        standing.in_flight += 1
        if standing.set_aside_until is not None and now >= standing.set_aside_until:
            standing.set_aside_until = None
        if not standing.calm and standing.breaker is not None:
            standing.breaker.begin(now)
        if pool.only is None:
            take(seat, now)
            if pool.standing.breaker is not None:
                pool.standing.breaker.begin(now)

    def first_output(
        self, replica: ReplicaId, *, now: float, ttft_s: float, began_at: float | None = None, was_overdue: bool = False
    ) -> None:
        """Take note of a stream's first output, so that a probe need not wait for its end. Then say `output_reported` at the end."""
        seat = self._seats[replica]
        standing, pool = seat.standing, seat.pool
        pool.standing.firsts.add(ttft_s, now=now)
        slow = pool.slow_after_s is not None and ttft_s > pool.slow_after_s
        if standing.breaker is not None:
            standing.breaker.output_began(now=now, began_at=began_at, slow=slow, rng=self._rng, was_overdue=was_overdue)
            standing.settle()
        if pool.standing.breaker is not None:
            widespread = slow and pool.is_widespread(now)
            pool.standing.breaker.output_began(
                now=now, began_at=began_at, slow=slow, rng=self._rng, widespread=widespread, was_overdue=was_overdue
            )
        if pool.measures:
            standing.latency.observe(ttft_s, now=now)

    def output_overdue(self, replica: ReplicaId, *, now: float, began_at: float) -> None:
        """Take note that a stream has waited `overdue_s` for its first output. Then say `was_overdue` when it comes."""
        seat = self._seats[replica]
        if seat.standing.breaker is not None:
            seat.standing.breaker.output_overdue(now=now, began_at=began_at, rng=self._rng)
            seat.standing.settle()
        if seat.pool.standing.breaker is not None:
            seat.pool.standing.breaker.output_overdue(now=now, began_at=began_at, rng=self._rng, widespread=seat.pool.is_widespread(now))

    def overdue_s(self, replica: ReplicaId) -> float | None:
        """Give how long a first token may take before it counts as slow; None: as long as it likes."""
        return self._seats[replica].pool.slow_after_s

    def end(
        self,
        replica: ReplicaId,
        failure: UpstreamFailure | None,
        *,
        now: float,
        began_at: float | None = None,
        output_reported: bool = False,
    ) -> None:
        """Close a call; `failure` None means the replica did its part. `output_reported` after `first_output`."""
        seat = self._seats[replica]
        standing = seat.standing
        standing.in_flight -= 1
        standing.used = True
        if failure is None:
            standing.failed_at = standing.last_error = None
            self._answered(seat, now, began_at, early=output_reported)
        elif failure.rate_limited:
            wish = failure.retry_after_s if failure.retry_after_s is not None else _SHORTEST_SET_ASIDE_S
            standing.set_aside_until = now + min(max(wish, _SHORTEST_SET_ASIDE_S), _LONGEST_SET_ASIDE_S)
            _release(seat, began_at, early=output_reported)
        elif failure.scope is FailureScope.GATEWAY:
            _release(seat, began_at, early=output_reported)
        elif failure.content_filter or failure.scope in _NOT_ITS_FAULT:  # a bad request or a missing model: it did answer
            self._answered(seat, now, began_at, early=output_reported)
        else:
            standing.failed_at = now
            standing.last_error = failure.message
            self._failed(seat, failure, now, began_at, early=output_reported)

    def abandon(self, replica: ReplicaId, *, now: float, began_at: float | None = None, output_reported: bool = False) -> None:
        """Close a call that ended for a reason of ours or the client's: it says nothing about the replica."""
        del now  # a call that says nothing says it at any time
        seat = self._seats[replica]
        seat.standing.in_flight -= 1
        _release(seat, began_at, early=output_reported)

    def _answered(self, seat: Seat, now: float, began_at: float | None, *, early: bool) -> None:
        standing, pool = seat.standing, seat.pool
        if standing.breaker is not None:
            standing.breaker.succeed(now=now, began_at=began_at, early=early)
            standing.settle()
        if pool.standing.breaker is not None:
            pool.standing.breaker.succeed(now=now, began_at=began_at, early=early)
        if pool.measures and began_at is not None and not early:
            standing.latency.observe(now - began_at, now=now)

    def _failed(self, seat: Seat, failure: UpstreamFailure, now: float, began_at: float | None, *, early: bool) -> None:
        standing, pool = seat.standing, seat.pool
        connect = failure.connect or failure.clock is Clock.CONNECT
        if standing.breaker is not None:
            standing.breaker.fail(now=now, began_at=began_at, rng=self._rng, connect=connect)
            standing.settle()
        if pool.standing.breaker is not None:
            pool.standing.breaker.fail(now=now, began_at=began_at, rng=self._rng, widespread=pool.is_widespread(now), early=early)
        if pool.measures and failure.clock is not None and began_at is not None:
            standing.latency.observe(now - began_at, now=now)  # it took at least as long; a quick refusal is no quick answer

    # ── facts from elsewhere ──────────────────────────────────────────────────

    def may_ask_usage(self, replica: ReplicaId) -> bool:
        """Tell whether a stream may be asked for its usage: some servers answer 400 to the option, and are remembered."""
        return not self._seats[replica].standing.refuses_usage_option

    def usage_option_refused(self, replica: ReplicaId) -> None:
        self._seats[replica].standing.refuses_usage_option = True

    def mark(self, replica: ReplicaId, *, present: bool, warm: bool, last_error: str | None = None) -> None:
        """Take note of a replica's life as its supervisor sees it."""
        standing = self._seats[replica].standing
        back = present and warm and not (standing.present and standing.warm)
        standing.present, standing.warm, standing.last_error = present, warm, last_error
        _settle(standing, back=back)

    def report(self, replica: ReplicaId, *, alive: bool, reason: str, now: float, doubted: bool = False) -> bool:
        """Take note of a health check, of this process or another node: a dead replica is not chosen. True when that is news.

        One that is back is tried at once, by the probes of its breaker. Others go before a `doubted` one, whose last check failed. A
        replica that is not known (any more) is no news.
        """
        del now  # what counts is what is true, not since when
        seat = self._seats.get(replica)
        if seat is None:
            return False
        standing = seat.standing
        news = alive is not (standing.dead is None)
        standing.doubted = doubted
        if news:
            standing.dead = None if alive else reason
        _settle(standing, back=alive and news)
        return news

    def drain(self, names: Collection[str]) -> None:
        """Keep exactly these out of service, each a replica or a whole upstream: what runs there ends, and nothing begins."""
        for seat in self._seats.values():
            drained = seat.replica.replica in names or seat.replica.upstream in names
            if drained is not seat.standing.drained:
                seat.standing.drained = drained
                _settle(seat.standing, back=not drained)

    # ── looks ─────────────────────────────────────────────────────────────────

    def wait_s(self, route: Route, *, now: float) -> float | None:
        """Seconds until the soonest replica of the route comes back that a 429 or a breaker holds back; None when there is none."""
        waits = []
        for target in route.targets:
            pool = self._by_upstream.get(target.upstream)
            for seat in pool.seats if pool is not None else ():
                wait_s = seat_wait_s(seat, now)
                if wait_s:
                    waits.append(wait_s)
        return min(waits, default=None)

    def is_rate_limited(self, route: Route, *, now: float) -> bool:
        """Tell whether 429s are what keeps the route from being served: then the client is told 429 too, so that it waits."""
        pools = [self._by_upstream.get(target.upstream) for target in route.targets]
        known = [seat for pool in pools if pool is not None for seat in pool.seats if seat_wait_s(seat, now)]
        return bool(known) and all(seat.standing.is_set_aside(now) for seat in known)

    def observed_ttft_s(self, upstream: UpstreamName) -> float | None:
        """Give the median of an upstream's recent first tokens; None until there are five."""
        pool = self._by_upstream.get(upstream)
        return pool.standing.firsts.median_s(now=self._latest) if pool is not None else None

    def statistics(self, *, now: float) -> tuple[ReplicaStatus, ...]:
        return tuple(replica_status(seat, now) for seat in self._seats.values())

    def pool_statistics(self, *, now: float) -> tuple[PoolStatus, ...]:
        return tuple(pool_status(pool, now) for pool in self._by_upstream.values())

    def explain(self, route: Route, model: ModelName, *, now: float) -> tuple[TargetView, ...]:
        """Say of each target and each of its replicas whether it may be chosen, and why not."""
        return tuple(
            target_view(rank, target, model, self._by_upstream.get(target.upstream), now) for rank, target in enumerate(route.targets)
        )


_NOT_ITS_FAULT = frozenset({FailureScope.REQUEST, FailureScope.MODEL})


def _choose_in(pool: PoolSeats, avoid: Collection[ReplicaId], now: float, rng: Random, affinity: str, *, soft: bool) -> Seat | None:
    together = pool.standing.breaker
    if together is not None and not together.admits(now, soft=soft):
        return None
    for seats in pool.classes:
        free = pool.free(seats, avoid, now, soft=soft)
        if not free:
            continue
        for seat in free:
            if not seat.standing.calm and seat.standing.breaker is not None and seat.standing.breaker.wants_probe(now):
                return seat  # else the others, which have no trouble behind them, would always win, and it would never come back
        if len(free) == 1:
            return free[0]
        if affinity and pool.keeps_sessions:
            return keep_session(affinity, free, now)
        return pick(pool.pick, free, now, rng)
    return None


def _release(seat: Seat, began_at: float | None, *, early: bool) -> None:
    if seat.standing.breaker is not None:
        seat.standing.breaker.release(began_at=began_at, early=early)
    if seat.pool.standing.breaker is not None:
        seat.pool.standing.breaker.release(began_at=began_at, early=early)


def _settle(standing: Standing, *, back: bool) -> None:
    if back and standing.breaker is not None:
        standing.breaker.end_pause()
    standing.settle()


def _as_pools(given: Collection[Pool] | Collection[Replica]) -> list[Pool]:
    """Make default pools of plain replicas."""
    pools: dict[UpstreamName, Pool] = {}
    for each in given:
        if isinstance(each, Pool):
            pools[each.upstream] = each
        else:
            known = pools.get(each.upstream)
            pools[each.upstream] = Pool(each.upstream, (*(known.replicas if known is not None else ()), each))
    return list(pools.values())
