"""What one worker believes of one replica that it asks from time to time: alive or not, and when to ask again.

Invariants: it takes `failures` failed questions in a row to believe a replica dead, or one after somebody else's word; one is enough to
doubt it, and one good answer to believe it alive; a belief is told once, when it is new. The first belief is always told: what others hold
of the replica may be older than this. Questions begin at most `every_s` apart, and at once after one that was not answered, so a server
that falls silent is out within `every_s + failures * timeout_s`.
"""

from __future__ import annotations

from random import Random

import msgspec

_SPREAD = 0.1
"""Share of `every_s` by which questions come earlier than they must, at random, so that workers do not ask in step."""
_LEAST_GAP_S = 0.2
"""Others' words do not make us ask more often than this."""
_OWN_DELAY_S = 0.5
"""A deadline noticed this late was missed by this process (it was stopped, or starved), and the answer may be waiting."""
_FIRST_FAILING_STATUS = 500


class HealthSettings(msgspec.Struct, frozen=True, gc=False):
    """As in the configuration's `health`."""

    every_s: float = 2.0
    timeout_s: float = 1.5
    failures: int = 2


class HealthVerdict(msgspec.Struct, frozen=True, gc=False):
    """A belief that is new; `reason` says why a replica is held dead, or doubted."""

    alive: bool
    reason: str = ""
    doubted: bool = False
    """Its last question failed, which is not enough to hold it dead: others should go first."""


class ReplicaHealth:
    """Call `ask` when a question begins, and then one of `answered`, `unreachable` and `unanswered`."""

    __slots__ = ("_asked_at", "_doubted", "_failures", "_rng", "_settings", "_suspected", "alive", "next_at")

    def __init__(self, settings: HealthSettings, *, now: float, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._failures = 0
        self._suspected = self._doubted = False
        self._asked_at = now - settings.every_s
        self.alive: bool | None = None
        """None until it is known."""
        self.next_at = now + rng.random() * settings.every_s
        """When the next question is due."""

    def __repr__(self) -> str:
        return f"ReplicaHealth(alive={self.alive}, failures={self._failures})"

    def ask(self, *, now: float) -> None:
        """Note that a question begins."""
        self._asked_at = now
        self.next_at = now + self._settings.every_s * (1.0 - _SPREAD * self._rng.random())

    def answered(self, status: int) -> HealthVerdict | None:
        """Take an answer. A server error is one of a server that is not ready: the 503 of one that loads its model, or of a proxy."""
        if status >= _FIRST_FAILING_STATUS:
            return self._failed(f"it answers health checks with status {status}")
        self._failures = 0
        self._suspected = False
        if self.alive and not self._doubted:
            return None
        self.alive, self._doubted = True, False
        return HealthVerdict(alive=True)

    def unreachable(self, reason: str) -> HealthVerdict | None:
        """Note that there was no connection, or that it broke."""
        return self._failed(reason)

    def unanswered(self, *, now: float) -> HealthVerdict | None:
        """Note that the time for the answer is over; the next question is due at once."""
        if now - self._asked_at > self._settings.timeout_s + _OWN_DELAY_S:
            return None
        self.next_at = min(self.next_at, now)
        return self._failed(f"it did not answer a health check within {self._settings.timeout_s:g} s")

    def suspect(self, *, alive: bool, now: float) -> None:
        """Somebody else has seen the replica dead, or alive: find out now, unless that is believed already."""
        if self.alive is alive:
            return
        self._suspected = not alive
        self.next_at = min(self.next_at, max(now, self._asked_at + _LEAST_GAP_S))

    def _failed(self, reason: str) -> HealthVerdict | None:
        self._failures += 1
        enough = self._suspected or self._failures >= self._settings.failures
        if self.alive is False:
            return None
        if enough:
            self.alive = self._suspected = self._doubted = False
            return HealthVerdict(alive=False, reason=reason)
        if self.alive is None or self._doubted:
            return None
        self._doubted = True
        return HealthVerdict(alive=True, reason=reason, doubted=True)
