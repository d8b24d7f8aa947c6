"""Watches one deadline for each of many connections at almost no cost for those that keep moving theirs.

Deadlines are rounded up to ticks and kept in buckets, one a tick. Moving a deadline later costs an attribute
assignment: the connection stays in its earlier bucket, and is moved on only when that bucket comes up. So a connection that
serves a thousand requests in its idle time is looked at once, and a sweep costs nothing for connections that are not due.

Sans-I/O: `now` is an argument, in the same seconds as the deadlines. Every watched member is in exactly one bucket.
"""

from __future__ import annotations

import math
from typing import Final, Generic, Protocol, TypeVar

TICK_S: Final = 0.25
"""How often `due` should be called, and the precision of every deadline: never early, at most two ticks late."""

NEVER: Final = math.inf


class Timed(Protocol):
    """What can be watched. `deadline` belongs to the member; `wake_at` to `Deadlines` (start it at `NEVER`)."""

    deadline: float
    wake_at: float


Member = TypeVar("Member", bound=Timed)


class Deadlines(Generic[Member]):
    """The buckets. Call `watch` when `deadline + TICK_S < wake_at`; otherwise the member is looked at soon enough."""

    __slots__ = ("_buckets", "_next_tick")

    def __init__(self, now: float) -> None:
        self._buckets: dict[int, set[Member]] = {}
        self._next_tick = int(now / TICK_S)

    def watch(self, member: Member) -> None:
        """Put the member where its deadline will be noticed; members without one (`NEVER`) are forgotten."""
        self.forget(member)
        if member.deadline == NEVER:
            return
        tick = max(int(member.deadline / TICK_S) + 1, self._next_tick)
        self._buckets.setdefault(tick, set()).add(member)
        member.wake_at = tick * TICK_S

    def forget(self, member: Member) -> None:
        if member.wake_at == NEVER:
            return
        tick = round(member.wake_at / TICK_S)
        bucket = self._buckets[tick]
        bucket.discard(member)
        if not bucket:
            del self._buckets[tick]
        member.wake_at = NEVER

    def due(self, now: float, *, at_most: int) -> list[Member]:
        """Give members whose deadline is past, no longer watched; those over `at_most` come with the next call."""
        tick_now = int(now / TICK_S)
        expired: list[Member] = []
        while self._next_tick <= tick_now:
            bucket = self._buckets.get(self._next_tick)
            while bucket:
                if len(expired) == at_most:
                    return expired
                member = bucket.pop()
                member.wake_at = NEVER
                if member.deadline <= now:
                    expired.append(member)
                elif member.deadline != NEVER:
                    # Its bucket is a later one: the deadline is past `now`, and rounded up.
                    later = max(int(member.deadline / TICK_S) + 1, self._next_tick + 1)
                    self._buckets.setdefault(later, set()).add(member)
                    member.wake_at = later * TICK_S
            self._buckets.pop(self._next_tick, None)
            self._next_tick += 1
        return expired
