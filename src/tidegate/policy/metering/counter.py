"""What a limiter needs of a counter, and of whoever keeps counters: the one interface of local counters and of leased ones.

A counter is the use of one resource by one subject, named `<rule>;key=abc`. Amounts are whole units of the resource, 0 or more;
`now` is seconds of any monotonic clock, the same for all counters of a source. Nothing here waits.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import msgspec

from tidegate.domain.limits import CounterSpec, StoreDown


class Counter:
    """Use of one resource by one subject. A plain class, so that compiled code calls it directly."""

    __slots__ = ("holders", "spec")

    spec: CounterSpec
    """How it counts, and the ceiling that holds here."""
    holders: int
    """Who keeps a reference to it; the limiter counts itself in and out. A source forgets only an idle counter that nobody holds."""

    @abstractmethod
    def take(self, amount: int, *, now: float) -> int | None:
        """Use `amount` if it fits; give the slot it went into, 0 or more, for `give_back`. None: nothing was used."""

    @abstractmethod
    def give_back(self, amount: int, slot: int, *, now: float) -> None:
        """Undo a part of what was taken in that slot; nothing happens if it has left the window."""

    @abstractmethod
    def charge(self, amount: int, *, now: float) -> None:
        """Use `amount` whether it fits or not; what does not fit is debt."""

    @abstractmethod
    def available(self, *, now: float) -> int:
        """Give what may be used now: 0 or more."""

    @abstractmethod
    def wait_s(self, amount: int, *, now: float) -> float | None:
        """Seconds until `amount` fits if nothing more is used, 0 when it fits now; None: it can never fit."""

    @abstractmethod
    def reset_s(self, *, now: float) -> float:
        """Seconds until nothing is in use, if nothing more is used."""

    @abstractmethod
    def is_idle(self, *, now: float) -> bool:
        """Tell whether forgetting it would change nothing."""

    @abstractmethod
    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:
        """Tell whether a refusal of `amount` may be undone by an exchange with a shared store, and ask for it there.

        `is_patient`: the request would also wait for what other workers have in use and may have ended. A local counter never says so.
        Called once for each refusal by `take`.
        """


class CounterStatistics(msgspec.Struct, frozen=True):
    """What a source keeps."""

    counters: int
    shared: int = 0
    """How often a name had to share a counter with others, because its rule had too many."""


class CounterSource(Protocol):
    """Keeps counters by name."""

    def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> Counter:
        """Give the counter of that name, as it is or a fresh one; from now on it counts as `spec` says."""

    def statistics(self) -> CounterStatistics: ...
