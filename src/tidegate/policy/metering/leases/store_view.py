"""What one worker knows of the store that it shares limits with: is it there, how many share, and which counters have something to say.

Invariants: a store that does not answer is away after one lease's time, and at once when a connection to it fails; after it came up
empty everybody has a moment to say what is in use before anybody asks for more.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.domain.leases import LEASE_S, LeaseAnswer

SETTLE_S = 1.5
"""After a store came up empty: three signs of life of every worker, each of which makes it tell what it used."""


class StoreView:
    """Shared by all leased counters of a worker. `epoch_s`: see `calendar_window`."""

    __slots__ = (
        "_asked_at",
        "_epoch",
        "_is_lost",
        "_sequence",
        "_settled_at",
        "awaited",
        "busy",
        "epoch_s",
        "lead_s",
        "lease_s",
        "press",
        "promised",
        "urgent",
        "workers",
    )

    def __init__(self, *, epoch_s: float, lead_s: float, lease_s: float = LEASE_S) -> None:
        self.epoch_s = epoch_s
        self.lead_s = lead_s
        """For how long ahead a busy counter leases."""
        self.lease_s = lease_s
        self.workers = 1
        self.awaited: dict[str, None] = {}
        """Counters for which a request waits that the next exchange is soon enough for."""
        self.busy: dict[str, None] = {}
        """Counters that hold a lease, or have something to say, by name; those that spoke last are last."""
        self.promised: dict[str, None] = {}
        """Counters with units that were granted for those who wait and have not asked again."""
        self.urgent: dict[str, None] = {}
        """Counters for which a request waits, or whose places others wait for."""
        self.press: Callable[[], None] = _do_nothing
        """Tells whoever exchanges with the store that it is urgent though no request of this worker waits."""
        self._sequence = 0
        self._epoch: int | None = None
        self._settled_at = float("-inf")
        self._is_lost = False
        self._asked_at: float | None = None

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    @property
    def last_sequence(self) -> int:
        return self._sequence

    def is_away(self, now: float) -> bool:
        """Tell whether the store has left this worker alone."""
        return self._is_lost or (self._asked_at is not None and now - self._asked_at >= self.lease_s)

    def is_settling(self, now: float) -> bool:
        """Tell whether the store came up empty a moment ago."""
        return now < self._settled_at

    def is_alone(self, now: float) -> bool:
        """Tell whether this worker has to judge by what it knows itself."""
        return self._is_lost or now < self._settled_at or (self._asked_at is not None and now - self._asked_at >= self.lease_s)

    def note_asked(self, now: float) -> None:
        if self._asked_at is None:
            self._asked_at = now

    def note_lost(self) -> None:
        """The store cannot be reached, or did not answer in time."""
        self._is_lost = True

    def note_answer(self, answer: LeaseAnswer, now: float) -> bool:
        """The store answered; tell whether it is not the one that was known."""
        self._is_lost = False
        self._asked_at = None
        self.workers = max(1, answer.workers)
        if answer.epoch == self._epoch:
            return False
        was_known = self._epoch is not None
        self._epoch = answer.epoch
        self._settled_at = now + max(0.0, SETTLE_S - answer.age_s)
        return was_known


def _do_nothing() -> None:
    """Nobody exchanges yet."""
