"""What a fleet looks like at one instant, in words for people. Looks only."""

from __future__ import annotations

from tidegate.domain.units import ModelName
from tidegate.domain.upstream import BreakerPhase, PoolStatus, ReplicaPhase, ReplicaStatus, Target, TargetView
from tidegate.policy.resilience.breaker import Breaker
from tidegate.policy.routing.standing import PoolSeats, Seat, Standing

_FAILING_FOR_S = 10.0  # how long a failure colours readiness when nothing newer is known


def replica_status(seat: Seat, now: float) -> ReplicaStatus:
    standing = seat.standing
    breaker = standing.breaker
    available = standing.available(now, soft=True) and _pool_admits(seat.pool, now)
    return ReplicaStatus(
        seat.replica.replica,
        seat.replica.upstream,
        _phase(seat, now),
        standing.in_flight,
        standing.dead if standing.dead is not None else standing.last_error,
        breaker=breaker.phase_at(now) if breaker is not None else BreakerPhase.CLOSED,
        available=available,
        why=_why(standing, now) or pool_words(seat.pool, now),
        back_in_s=None if available else seat_wait_s(seat, now),
        trips=breaker.trips if breaker is not None else 0,
    )


def pool_status(pool: PoolSeats, now: float) -> PoolStatus:
    breaker = pool.standing.breaker
    if breaker is None:
        return PoolStatus(pool.upstream, BreakerPhase.CLOSED)
    wait_s = breaker.wait_s(now)
    return PoolStatus(pool.upstream, breaker.phase_at(now), _breaker_words(breaker, now), wait_s or None, breaker.trips)


def target_view(rank: int, target: Target, model: ModelName, pool: PoolSeats | None, now: float) -> TargetView:
    name = target.model or model
    if pool is None:
        return TargetView(rank, target.upstream, name, available=False, why="there is no such upstream", replicas=())
    replicas = tuple(replica_status(seat, now) for seat in pool.seats)
    available = any(status.available for status in replicas)
    return TargetView(rank, target.upstream, name, available=available, why=pool_words(pool, now), replicas=replicas)


def pool_words(pool: PoolSeats, now: float) -> str:
    """Say what the pool's own breaker holds against it; nothing when that is closed."""
    breaker = pool.standing.breaker
    words = _breaker_words(breaker, now) if breaker is not None else ""
    return f"the whole pool: {words}" if words else ""


def _pool_admits(pool: PoolSeats, now: float) -> bool:
    breaker = pool.standing.breaker
    return breaker is None or breaker.admits(now, soft=True)


def _phase(seat: Seat, now: float) -> ReplicaPhase:
    standing = seat.standing
    if standing.drained:
        return ReplicaPhase.DRAINED
    if not standing.present or standing.dead is not None:
        return ReplicaPhase.AWAY
    if not standing.warm:
        return ReplicaPhase.WARMING
    if standing.is_set_aside(now):
        return ReplicaPhase.SET_ASIDE
    refused = not standing.available(now, soft=True) or not _pool_admits(seat.pool, now)
    if refused or (standing.failed_at is not None and now - standing.failed_at < _FAILING_FOR_S):
        return ReplicaPhase.FAILING
    return ReplicaPhase.READY if standing.used else ReplicaPhase.UNUSED


def seat_wait_s(seat: Seat, now: float) -> float | None:
    """Seconds until a call may begin: 0 when it may now, None when that is not known."""
    standing = seat.standing
    if not standing.present or not standing.warm or standing.dead is not None or standing.drained:
        return None
    wait_s = 0.0
    if standing.set_aside_until is not None and standing.set_aside_until > now:
        wait_s = standing.set_aside_until - now
    for breaker in (standing.breaker, seat.pool.standing.breaker):
        if breaker is not None:
            wait_s = max(wait_s, breaker.wait_s(now))
    return wait_s


def _why(standing: Standing, now: float) -> str:
    if standing.drained:
        return "an operator took it out of service"
    if not standing.present:
        return "its process does not run"
    if standing.dead is not None:
        return "it does not answer health checks"
    if not standing.warm:
        return "it is starting"
    if standing.is_set_aside(now):
        return "it answered 429 and asked for a pause"
    words = _breaker_words(standing.breaker, now) if standing.breaker is not None else ""
    return words or ("others go first: its last health check failed" if standing.doubted else "")


def _breaker_words(breaker: Breaker, now: float) -> str:
    phase = breaker.phase_at(now)
    if phase is BreakerPhase.CLOSED:
        return ""
    if phase is BreakerPhase.OPEN:
        return f"left alone for {breaker.wait_s(now):.1f} s more: {breaker.reason}"
    if phase is BreakerPhase.HALF_OPEN:
        return f"being tried with few calls: {breaker.reason}"
    return f"others go first: {breaker.reason}"
