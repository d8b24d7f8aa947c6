"""How long one request waits for leases of limits that are shared with other processes: a few times at each gate, and briefly in all.

Asking again may help: while the lease of one limit was on its way, others may have used that of another, and a place that another worker
has in use may be given back.
"""

from __future__ import annotations

from typing import Final

LEASE_WAIT_S: Final = 0.5
"""All waits of one request together. Ten exchanges: by then the store has answered, or is away."""
LEAST_LEASE_WAITS: Final = 4
"""At one gate, as long as there is time; one is a millisecond or so, or until the next exchange where others are to give back."""
MOST_LEASE_WAITS: Final = 16
"""At one gate, while others forestall the request again and again."""
FORESTALLED_S: Final = 0.2
"""Whom others have forestalled for so long at one gate is not alone with that: the limit is crowded."""


class LeaseWaits:
    """The waits of one request."""

    __slots__ = ("_began_at", "_count", "_here_s", "_left_s")

    def __init__(self) -> None:
        self._count = 0
        """At this gate, as `_here_s` is."""
        self._here_s = 0.0
        self._left_s = LEASE_WAIT_S
        self._began_at = 0.0

    def __repr__(self) -> str:
        return f"LeaseWaits({self._count}, {self._left_s:g} s left)"

    @property
    def may_wait(self) -> bool:
        if self._left_s <= 0:
            return False
        return self._count < LEAST_LEASE_WAITS or (self._count < MOST_LEASE_WAITS and self._here_s < FORESTALLED_S)

    def begin(self, *, now: float) -> float:
        """Wait once more; give the seconds that it may take."""
        self._count += 1
        self._began_at = now
        return self._left_s

    def end(self, *, now: float) -> None:
        self._here_s += now - self._began_at
        self._left_s -= now - self._began_at

    def pass_gate(self) -> None:
        """What follows is another gate."""
        self._count = 0
        self._here_s = 0.0
