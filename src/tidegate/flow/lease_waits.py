"""How long one request waits for leases of limits that are shared with other processes: a few times at each gate, and briefly in all.

Asking again may help: while the lease of one limit was on its way, others may have used that of another.
"""

from __future__ import annotations

from typing import Final

LEASE_WAIT_S: Final = 0.5
"""All waits of one request together. Ten exchanges: by then the store has answered, or is away."""
MOST_LEASE_WAITS: Final = 4
"""At one gate; one is a millisecond or so. Whom others forestall so often is not alone with that: the limit is crowded."""


class LeaseWaits:
    """The waits of one request."""

    __slots__ = ("_began_at", "_left_s", "count")

    def __init__(self) -> None:
        self.count = 0
        """At this gate."""
        self._left_s = LEASE_WAIT_S
        self._began_at = 0.0

    def __repr__(self) -> str:
        return f"LeaseWaits({self.count}, {self._left_s:g} s left)"

    @property
    def may_wait(self) -> bool:
        return self.count < MOST_LEASE_WAITS and self._left_s > 0

    def begin(self, *, now: float) -> float:
        """Wait once more; give the seconds that it may take."""
        self.count += 1
        self._began_at = now
        return self._left_s

    def end(self, *, now: float) -> None:
        self._left_s -= now - self._began_at
