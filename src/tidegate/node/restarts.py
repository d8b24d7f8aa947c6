"""Decides when a process that died is started again, and when to give up. Pure: `now` is an argument.

Pauses double from `first_pause_s` to `longest_pause_s`, and start over after a life of `healthy_s`.
"""

from __future__ import annotations

from collections import deque

import msgspec


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds. `give_up_after` None: never."""

    first_pause_s: float = 0.1
    longest_pause_s: float = 10.0
    healthy_s: float = 30.0
    give_up_after: int | None = 5
    within_s: float = 30.0


class Restarts:
    """Remembers the deaths of one process."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._deaths: deque[float] = deque(maxlen=policy.give_up_after or 1)
        self._in_a_row = 0
        self.count = 0
        """Deaths so far."""

    def died(self, *, lived_s: float, now: float) -> float | None:
        """Give the pause before the next start; None to give up."""
        policy = self._policy
        self.count += 1
        self._deaths.append(now)
        if policy.give_up_after is not None and len(self._deaths) == policy.give_up_after and now - self._deaths[0] <= policy.within_s:
            return None
        self._in_a_row = 0 if lived_s >= policy.healthy_s else self._in_a_row + 1
        # 2^30 is far over any pause; the bound keeps the power small.
        return min(policy.longest_pause_s, policy.first_pause_s * 2.0 ** min(30, max(0, self._in_a_row - 1)))
