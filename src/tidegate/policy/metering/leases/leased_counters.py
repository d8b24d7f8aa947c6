"""All leased counters of one worker, and what it says to the store and hears from it.

Nothing here waits or does I/O: `claims` is what to send, `receive` takes the answer, `lost` says that there was none. Invariants: every
claim is answered, said again, or too old to matter; counters are bounded as the register says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.domain.leases import LEASE_S, LeaseAnswer, LeaseClaim
from tidegate.domain.limits import CounterSpec, StoreDown
from tidegate.policy.metering.counter import CounterStatistics
from tidegate.policy.metering.counter_register import MOST_PER_RULE, CounterRegister, count_alike
from tidegate.policy.metering.leases.leased_counter import LeasedCounter
from tidegate.policy.metering.leases.store_view import StoreView

MOST_CLAIMS = 512
"""In one exchange: some 50 KB and a few milliseconds of the store; what remains comes with the next."""
LEAD_S = 0.15
"""A busy counter leases three exchanges ahead: an exchange may be late once without anybody noticing."""

Shortage = tuple[LeasedCounter, int]
"""A counter for which somebody waits, and the last claim that cannot help."""


class LeasedCounters:
    """Implements `policy.metering.counter.CounterSource`."""

    def __init__(
        self, *, epoch_s: float = 0.0, lead_s: float = LEAD_S, lease_s: float = LEASE_S, most_per_rule: int = MOST_PER_RULE
    ) -> None:
        """`epoch_s`: see `calendar_window`."""
        self._view = StoreView(epoch_s=epoch_s, lead_s=lead_s, lease_s=lease_s)
        self._register: CounterRegister[LeasedCounter] = CounterRegister(most_per_rule)
        self._counters = self._register.counters
        self._under_way: set[str] = set()

    def __repr__(self) -> str:
        return f"LeasedCounters({len(self._counters)}, workers={self._view.workers})"

    def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> LeasedCounter:
        name = self._register.kept_name(name, now=now)
        known = self._counters.get(name)
        if known is not None and count_alike(known.spec, spec):
            if known.spec != spec:
                known.spec = spec
            known.on_store_down = on_store_down
            return known
        made = LeasedCounter(name, spec, on_store_down, self._view, now=now)
        self._register.keep(name, made)
        return made

    def statistics(self) -> CounterStatistics:
        return self._register.statistics()

    def levels(self, *, now: float) -> dict[str, float]:
        """Say how things stand with the store. `lease_units` bounds what can be admitted beyond a limit, or be kept from others."""
        return {
            "store_away": float(self._view.is_away(now)),
            "store_settling": float(self._view.is_settling(now)),
            "lease_units": float(sum(self._counters[name].spare(now=now) for name in self._view.busy if name in self._counters)),
            "store_workers": float(self._view.workers),
        }

    def is_away(self, *, now: float) -> bool:
        return self._view.is_away(now)

    # ── the exchange with the store ───────────────────────────────────────────

    def claims(self, *, now: float) -> tuple[LeaseClaim, ...]:
        """Give what is to be said now; what is given is ended by `receive` or `lost`."""
        view = self._view
        made: list[LeaseClaim] = []
        for name in dict.fromkeys((*view.urgent, *view.busy)):
            if len(made) == MOST_CLAIMS:
                break
            counter = self._counters.get(name)
            claim = counter.claim(now=now) if counter is not None else None
            if claim is not None:
                made.append(claim)
                self._under_way.add(name)
                view.urgent.pop(name, None)
                view.awaited.pop(name, None)
                view.busy.pop(name, None)
                view.busy[name] = None
            elif counter is None or not counter.is_engaged:
                view.busy.pop(name, None)
                view.urgent.pop(name, None)
                view.awaited.pop(name, None)
        return tuple(made)

    def note_asked(self, *, now: float) -> None:
        """An exchange begins, with claims or as a sign of life."""
        self._view.note_asked(now)

    def receive(self, answer: LeaseAnswer, *, now: float) -> None:
        """Take an answer of the store."""
        is_another = self._view.note_answer(answer, now)
        for grant in answer.grants:
            self._under_way.discard(grant.counter)
            counter = self._counters.get(grant.counter)
            if counter is not None:
                counter.take_grant(grant, now=now)
        if is_another:
            self._tell_anew({grant.counter for grant in answer.grants}, now)

    def lost(self, claims: Sequence[LeaseClaim]) -> None:
        """The store could not be reached or did not answer in time."""
        self._view.note_lost()
        self.unanswered(claims)

    def unanswered(self, claims: Sequence[LeaseClaim]) -> None:
        """These are to be said again, though the store is there."""
        for claim in claims:
            self._under_way.discard(claim.counter)
            counter = self._counters.get(claim.counter)
            if counter is not None:
                counter.note_lost(claim.sequence)

    def when_pressed(self, press: Callable[[], None]) -> None:
        """Call `press` whenever a claim has become urgent and no request of this worker waits for it."""
        self._view.press = press

    def is_pressed(self) -> bool:
        """Tell whether somebody waits for a claim that was not made yet."""
        return bool(self._view.urgent)

    def shortages(self) -> tuple[Shortage, ...]:
        """Give what is waited for at this moment; see `is_covered`."""
        counters, mark = self._counters, self._view.last_sequence
        view = self._view
        asked = [(counters[name], mark) for name in (*view.urgent, *view.awaited) if name in counters]
        return (*asked, *((counters[name], counters[name].answered) for name in self._under_way if name in counters))

    def serve_waiting(self) -> None:
        """Those who waited ask again now; see `LeasedCounter.serve`."""
        promised = self._view.promised
        while promised:
            counter = self._counters.get(promised.popitem()[0])
            if counter is not None:
                counter.serve()

    def _tell_anew(self, answered: set[str], now: float) -> None:
        """Tell the store that came up empty of all that matters; what it has just answered was judged counter by counter."""
        for name, counter in self._counters.items():
            if name not in answered and counter.is_known:
                counter.begin_anew(now=now)


def is_covered(shortage: Shortage) -> bool:
    """Tell whether what was waited for has been asked for and answered."""
    counter, mark = shortage
    return counter.answered > mark
