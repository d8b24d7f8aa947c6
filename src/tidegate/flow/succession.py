"""What follows a failed attempt of one call: the same again, less of it, something smaller, or another target.

Made at the first failure, so that a call that succeeds at once does not pay for it. Without a ladder: another replica or target at once,
else the same replica after a pause. With one, see `policy.resilience.ladder`. Invariants: at most `max_attempts` attempts; each one after
the first is counted in the retry budget; a 429 is waited for at most once.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.features import PromptFeatures
from tidegate.domain.request import BodyChanges, Operation, ParsedRequest
from tidegate.domain.units import ReplicaId
from tidegate.domain.upstream import Choice, Clock, Route, Target, UpstreamFailure
from tidegate.flow.facts import Policies
from tidegate.policy.resilience.ladder import Ladder, Rung


class Failed(msgspec.Struct, frozen=True):
    """The attempt that failed, and how."""

    failure: UpstreamFailure
    choice: Choice
    attempt: int
    rung: Rung
    lost: bool = False
    """Its replica was found dead: all its calls leave it at once, whatever the budget, for nobody has served them yet."""
    ours: bool = False
    """It was refused for what we added to the request; the same goes once more without it."""

    @property
    def spoils_replica(self) -> bool:
        """Tell whether nothing of this call need be tried on the same replica."""
        return self.lost or self.failure.connect or self.failure.clock not in (None, Clock.TOTAL)


class Successor(msgspec.Struct, frozen=True):
    """The next attempt. `choice` None: it is chosen when the pause is over."""

    rung: Rung
    choice: Choice | None
    pause_s: float = 0.0


class Succession:
    """Knows what was tried. `base` is the choice of the first attempt: the ladder stands on its target."""

    def __init__(
        self,
        policies: Policies,
        request: ParsedRequest,
        route: Route,
        base: Choice,
        *,
        features: PromptFeatures | None = None,
        affinity: str = "",
    ) -> None:
        self._policies = policies
        self._request = request
        self._route = route
        self._features = features
        self._affinity = affinity
        self._ladder: Ladder | None = policies.ladders.get(route.pattern) if request.operation is not Operation.EMBEDDING else None
        self._rungs = [] if self._ladder is None else [Rung.SAME, Rung.SHORTER, Rung.SMALLER]
        self._all = tuple(range(len(route.targets)))
        self._base = (base.rank,)
        self._others = tuple(rank for rank in self._all if rank != base.rank) if self._ladder is not None else self._all
        self._paused_for = self._all
        """Among which targets a replica is chosen when the pause is over."""
        self._tries: dict[ReplicaId, int] = {}
        self._exhausted: set[ReplicaId] = set()
        self._beyond: set[int] = set()
        """Ranks of targets that need more than the limits have left."""
        self._waited = False

    def __repr__(self) -> str:
        return f"Succession({len(self._exhausted)} exhausted, next rungs: {', '.join(self._rungs) or 'none'})"

    def shorter(self, changes: BodyChanges | None) -> BodyChanges:
        """Give what the shorter rung changes; `changes` are in force already."""
        assert self._ladder is not None
        return self._ladder.shorter(self._request.max_completion_tokens, changes)

    def after(self, failed: Failed, *, now: float) -> Successor | None:
        """Decide what follows; None when this failure is the call's."""
        policies, replica = self._policies, failed.choice.replica.replica
        self._tries[replica] = self._tries.get(replica, 0) + 1
        if failed.ours and failed.attempt < policies.retry.max_attempts:
            policies.budget.charge(now=now)
            return Successor(Rung.SAME if failed.rung is Rung.FIRST else failed.rung, failed.choice)
        if not policies.retry.may_retry(failed.failure, failed.attempt):
            return None
        successor = self._climb(failed, now) or self._turn(failed, now) or self._wait(failed, now)
        if successor is None:
            return None
        if failed.lost:
            policies.budget.charge(now=now)
            return successor
        return successor if policies.budget.withdraw(now=now) else None

    def resume(self, rung: Rung, last: Choice, *, now: float) -> Successor | None:
        """Choose when a pause is over: the fleet may look different now."""
        choice = self._choose(self._paused_for, self._exhausted, now)
        if choice is None:
            return None
        return Successor(rung if choice.rank == last.rank else Rung.NEXT, choice)

    def instead_of(self, choice: Choice, rung: Rung, *, now: float) -> Successor | None:
        """Choose another target than one that needs more than the limits have left. Nothing was tried there, so it counts as no attempt."""
        self._beyond.add(choice.rank)
        other = self._choose(self._all, self._exhausted, now)
        return None if other is None else Successor(rung if rung is Rung.FIRST else Rung.NEXT, other)

    # ── the ladder ────────────────────────────────────────────────────────────

    def _climb(self, failed: Failed, now: float) -> Successor | None:
        """Take the next rung that can be taken. The last attempt is kept for the route's other targets, where one is available."""
        if failed.attempt + 1 == self._policies.retry.max_attempts and self._rungs:
            avoid = self._exhausted | {failed.choice.replica.replica}
            if self._choose(self._others, avoid, now) is not None:
                self._rungs = []
        while self._rungs:
            rung = self._rungs.pop(0)
            successor = self._smaller(failed, now) if rung is Rung.SMALLER else self._once_more(rung, failed, now)
            if successor is not None:
                if failed.spoils_replica:
                    self._exhausted.add(failed.choice.replica.replica)
                return successor
        return None

    def _once_more(self, rung: Rung, failed: Failed, now: float) -> Successor | None:
        """Try the same target: another replica at once, or the same one after a pause where that may help."""
        failure, replica = failed.failure, failed.choice.replica.replica
        other = self._choose(self._base, self._exhausted | {replica}, now)
        if other is not None:
            return Successor(rung, other)
        if failed.spoils_replica or not failure.retryable or failure.rate_limited:
            return None
        if rung is Rung.SAME and not self._policies.retry.may_repeat(failure, self._tries[replica]):
            return None
        return self._pause(rung, failed, self._base)

    def _smaller(self, failed: Failed, now: float) -> Successor | None:
        assert self._ladder is not None
        target = self._ladder.smaller_for(precise=self._ladder.asks_precision and self._is_precise())
        if target is None or len(self._all) in self._beyond:
            return None
        avoid = {failed.choice.replica.replica} if failed.spoils_replica else set()
        choice = self._pick((target,), self._exhausted | avoid, now)
        return None if choice is None else Successor(Rung.SMALLER, Choice(choice.replica, choice.model, len(self._all)))

    def _is_precise(self) -> bool:
        features = self._features if self._features is not None else self._policies.router.features(self._request)
        return features.is_precise

    # ── without one, and after it ─────────────────────────────────────────────

    def _turn(self, failed: Failed, now: float) -> Successor | None:
        """Turn to another replica or target; to the same one, after a pause, only when there is no other."""
        failure, replica = failed.failure, failed.choice.replica.replica
        other = self._choose(self._others, self._exhausted | {replica}, now)
        if other is None and self._policies.retry.may_repeat(failure, self._tries[replica]):
            return self._pause(Rung.SAME, failed, self._all)
        if not failure.rate_limited:  # one that asked for a pause is set aside by the fleet for that time, and no longer
            self._exhausted.add(replica)
        return None if other is None else Successor(Rung.SAME if other.rank == failed.choice.rank else Rung.NEXT, other)

    def _wait(self, failed: Failed, now: float) -> Successor | None:
        """Wait for the end of a 429's pause, if it is short: there is nobody else."""
        if not failed.failure.rate_limited or self._waited:
            return None
        wait_s = self._policies.fleet.wait_s(self._route, now=now)
        if wait_s is None or wait_s > self._policies.retry.max_retry_after_s:
            return None
        self._waited = True
        pause = self._pause(Rung.SAME, failed, self._all)
        return Successor(pause.rung, None, wait_s + pause.pause_s)

    def _pause(self, rung: Rung, failed: Failed, ranks: tuple[int, ...]) -> Successor:
        self._paused_for = ranks
        return Successor(rung, None, self._policies.retry.delay_s(failed.attempt, self._policies.rng))

    def _choose(self, ranks: tuple[int, ...], avoid: set[ReplicaId], now: float) -> Choice | None:
        targets = self._route.targets
        if self._beyond:
            ranks = tuple(rank for rank in ranks if rank not in self._beyond)
        choice = self._pick(tuple(targets[rank] for rank in ranks), avoid, now)
        return None if choice is None else Choice(choice.replica, choice.model, ranks[choice.rank])

    def _pick(self, targets: tuple[Target, ...], avoid: set[ReplicaId], now: float) -> Choice | None:
        policies = self._policies
        route = Route(self._route.pattern, targets)
        return policies.fleet.choose(route, self._request.model, avoid, now=now, rng=policies.rng, affinity=self._affinity)
