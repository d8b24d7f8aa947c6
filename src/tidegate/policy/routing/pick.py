"""Which of several free replicas gets the next call. Picking changes nothing; `take` does, when the call begins.

* `least_in_flight`: the one with the fewest calls, for its weight.
* `peak_ewma`: the one whose recent latency, times its calls, is lowest: it leaves a slow replica sooner than counting does.
* `two_choices`: the less loaded of two drawn at random: no herd runs to the same replica when many gateways see the same figures.
* `weighted`: each replica has its turn on the pool's clock, and one call puts it off by 1 / weight (stride scheduling, Waldspurger and
  Weihl 1995). Over a cycle the shares are exact and evenly spread, which random draws are only in the long run, and a pool that answers
  a few calls a minute has no long run.

Ties go to the one whose turn it is, so that no replica of a quiet pool is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidegate.domain.upstream import Pick
from tidegate.policy.routing.affinity import LEAST_BOUND, MOST_LOAD, draw, seed_of
from tidegate.policy.routing.standing import Seat


def pick(kind: Pick, free: Sequence[Seat], now: float, rng: Random) -> Seat:
    """Pick one of at least two."""
    if kind is Pick.TWO_CHOICES:
        first = int(rng.random() * len(free))
        second = int(rng.random() * (len(free) - 1))
        if second >= first:
            second += 1
        free = (free[first], free[second])
    best = free[0]
    lowest = _cost(kind, best, now)
    for seat in free[1:]:
        cost = _cost(kind, seat, now)
        if cost < lowest or (cost == lowest and seat.turn() < best.turn()):
            best, lowest = seat, cost
    return best


def _cost(kind: Pick, seat: Seat, now: float) -> float:
    if kind is Pick.WEIGHTED:
        return seat.turn()
    if kind is Pick.PEAK_EWMA:
        return seat.standing.latency.cost(seat.standing.in_flight, now=now) / seat.weight_at(now)
    return seat.load(now)


def take(seat: Seat, now: float) -> None:
    """Put off a replica's next turn, because a call begins there."""
    turn = seat.turn()
    seat.pool.standing.clock = turn
    seat.standing.turn = turn + 1.0 / seat.weight_at(now)


def keep_session(session: str, free: Sequence[Seat], now: float) -> Seat:
    """Give the replica of a session, or the next in its order that has no more than its part of the load."""
    key = seed_of(session)
    calls = 1
    weights = 0.0
    for seat in free:
        calls += seat.standing.in_flight
        weights += seat.weight_at(now)
    bound = MOST_LOAD * calls / weights
    best = free[0]
    lowest = float("inf")
    for seat in free:
        weight = seat.weight_at(now)
        if seat.standing.in_flight + 1 > max(float(LEAST_BOUND), bound * weight):
            continue
        drawn = draw(key, seat.seed, weight)
        if drawn < lowest:
            best, lowest = seat, drawn
    return best
