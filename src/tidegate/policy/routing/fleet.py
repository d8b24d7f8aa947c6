"""The state of every replica, and the choice among a route's targets: filter, then score, then pick.

Invariants: `in_flight` of a replica returns to zero when every attempt begun with `begin` was closed with `end` or `abandon`;
a replica set aside or marked away is not chosen, whatever its score.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import (
    Choice,
    FailureScope,
    Replica,
    ReplicaPhase,
    ReplicaStatus,
    Route,
    UpstreamFailure,
)

_LONGEST_SET_ASIDE_S = 60.0  # an upstream's Retry-After is believed up to here
_SHORTEST_SET_ASIDE_S = 1.0
_FAILING_FOR_S = 10.0  # how long a failure colours readiness when nothing newer is known


class _State:
    __slots__ = ("failed_at", "in_flight", "last_error", "present", "refuses_usage_option", "set_aside_until", "used", "warm")

    def __init__(self) -> None:
        self.in_flight = 0
        self.set_aside_until: float | None = None
        self.present = True
        self.warm = True
        self.used = False
        self.failed_at: float | None = None
        self.last_error: str | None = None
        self.refuses_usage_option = False


class Fleet:
    """All replicas of one configuration. States outlive a reload for replicas that stay."""

    def __init__(self, replicas: Collection[Replica], *, before: Fleet | None = None) -> None:
        self.replicas: Mapping[ReplicaId, Replica] = {replica.replica: replica for replica in replicas}
        known: Mapping[ReplicaId, _State] = before._states if before is not None else {}  # noqa: SLF001  the same class
        self._states: dict[ReplicaId, _State] = {name: known.get(name) or _State() for name in self.replicas}
        self._by_upstream: dict[UpstreamName, list[Replica]] = {}
        for replica in replicas:
            self._by_upstream.setdefault(replica.upstream, []).append(replica)

    def __repr__(self) -> str:
        return f"Fleet({', '.join(f'{name}: {state.in_flight}' for name, state in self._states.items())})"

    def choose(self, route: Route, model: ModelName, avoid: Collection[ReplicaId], *, now: float) -> Choice | None:
        """Pick from the first target that has an available replica not in `avoid`: the one with the fewest calls in flight."""
        for rank, target in enumerate(route.targets):
            best: Replica | None = None
            least = 0
            for replica in self._by_upstream.get(target.upstream, ()):
                if replica.replica in avoid or not self._is_available(self._states[replica.replica], now):
                    continue
                load = self._states[replica.replica].in_flight
                if best is None or load < least:
                    best, least = replica, load
            if best is not None:
                return Choice(best, target.model or model, rank)
        return None

    @staticmethod
    def _is_available(state: _State, now: float) -> bool:
        return state.present and state.warm and (state.set_aside_until is None or now >= state.set_aside_until)

    def begin(self, replica: ReplicaId) -> None:
        self._states[replica].in_flight += 1

    def end(self, replica: ReplicaId, failure: UpstreamFailure | None, *, now: float) -> None:
        """Close an attempt; `failure` None means the replica did its part."""
        state = self._states[replica]
        state.in_flight -= 1
        state.used = True
        if failure is None:
            state.failed_at = state.last_error = None
            return
        if failure.rate_limited:
            wish = failure.retry_after_s if failure.retry_after_s is not None else _SHORTEST_SET_ASIDE_S
            state.set_aside_until = now + min(max(wish, _SHORTEST_SET_ASIDE_S), _LONGEST_SET_ASIDE_S)
        elif failure.scope in (FailureScope.REPLICA, FailureScope.KEY):  # a missing model or a bad request says nothing of the replica
            state.failed_at = now
            state.last_error = failure.message

    def abandon(self, replica: ReplicaId) -> None:
        """Close an attempt that ended for a reason of ours or the client's: it says nothing about the replica."""
        self._states[replica].in_flight -= 1

    def may_ask_usage(self, replica: ReplicaId) -> bool:
        """Tell whether a stream may be asked for its usage: some servers answer 400 to the option, and are remembered."""
        return not self._states[replica].refuses_usage_option

    def usage_option_refused(self, replica: ReplicaId) -> None:
        self._states[replica].refuses_usage_option = True

    def mark(self, replica: ReplicaId, *, present: bool, warm: bool, last_error: str | None = None) -> None:
        """Take note of a replica's life as its supervisor sees it."""
        state = self._states[replica]
        state.present, state.warm, state.last_error = present, warm, last_error

    def wait_s(self, route: Route, *, now: float) -> float | None:
        """Seconds until a replica of the route that is set aside comes back; None when there is none."""
        upstreams = {target.upstream for target in route.targets}
        waits = [
            state.set_aside_until - now
            for name, state in self._states.items()
            if state.present
            and state.set_aside_until is not None
            and state.set_aside_until > now
            and self.replicas[name].upstream in upstreams
        ]
        return min(waits, default=None)

    def statistics(self, *, now: float) -> tuple[ReplicaStatus, ...]:
        return tuple(
            ReplicaStatus(name, self.replicas[name].upstream, self._phase(state, now), state.in_flight, state.last_error)
            for name, state in self._states.items()
        )

    @staticmethod
    def _phase(state: _State, now: float) -> ReplicaPhase:
        if not state.present:
            return ReplicaPhase.AWAY
        if not state.warm:
            return ReplicaPhase.WARMING
        if state.set_aside_until is not None and now < state.set_aside_until:
            return ReplicaPhase.SET_ASIDE
        if state.failed_at is not None and now - state.failed_at < _FAILING_FOR_S:
            return ReplicaPhase.FAILING
        return ReplicaPhase.READY if state.used else ReplicaPhase.UNUSED
