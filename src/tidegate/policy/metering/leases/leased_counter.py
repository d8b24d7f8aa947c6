"""One counter as one worker has it: a lease of a few units, and its own account of what it used.

Invariants: a unit is used of a lease that lives, or else it is owed and said so with the next claim; at most one claim is under way, and
it is said again unchanged until it is answered; what is given back returns to where it was counted. When the store forgets, the account
of what this worker used and what still matters is said anew: nothing is counted twice, and nothing is forgotten.
"""

from __future__ import annotations

from tidegate.domain.leases import LeaseClaim, LeaseGrant, open_s
from tidegate.domain.limits import CounterSpec, Meter, StoreDown, most_at_once
from tidegate.policy.metering.calendar_window import period_at
from tidegate.policy.metering.counter import Counter
from tidegate.policy.metering.leases.store_view import StoreView

RENEW_S = 0.25
"""A lease without news is renewed so often: four times in its life."""
IDLE_S = 1.0
"""After so long without use a lease is given back."""
DRY_S = 0.1
"""How long "no more is left" is believed without another answer: two exchanges."""
CONTENDED_S = 10.0
"""For so long after a place was missing that others had, every place is given back at once: they may be short of it in turn."""
AHEAD_PARTS = 64
"""All workers together lease at most this part of a ceiling ahead of use: idle leases keep others from at most 1.6 % of it."""

_RATE_OVER_S = 0.5  # the rate follows a change within a few exchanges and is not thrown by one request
_BUCKETS = 600  # of the account, per window: as fine as the window's own slots
_OWED_PARTS = 60  # entries of what is owed in one claim, at most about: as coarse as a second of a minute
_LEAST_WAIT_S = 0.05
_PLENTY_TIMES = 8  # what is wanted: as many workers may want as much and find it


class _Use:
    """What was used in one stretch of time and is counted in one slot of the authority."""

    __slots__ = ("last_at", "number", "opened_at", "owed", "returned", "slot", "used")

    def __init__(self, number: int, slot: int | None, now: float) -> None:
        self.number = number
        self.slot = slot
        """None: the authority has not said yet."""
        self.opened_at = self.last_at = now
        self.used = 0
        self.owed = 0
        """Of `used`: not said yet."""
        self.returned = 0
        """Not used after all, and not said yet."""


class LeasedCounter(Counter):
    """A slot is the number of a stretch of this worker's own account."""

    __slots__ = (
        "_answered_at",
        "_available",
        "_claim",
        "_claimed_at",
        "_contended_until",
        "_current",
        "_demand",
        "_dry",
        "_ends_at",
        "_in_use",
        "_is_places",
        "_is_under_way",
        "_largest",
        "_lease",
        "_life",
        "_need",
        "_promised",
        "_rate",
        "_reset_s",
        "_spent",
        "_turned_over_at",
        "_unsaid",
        "_used_at",
        "_uses",
        "_view",
        "_wait_s",
        "_waiting",
        "answered",
        "name",
        "on_store_down",
    )

    def __init__(self, name: str, spec: CounterSpec, on_store_down: StoreDown, view: StoreView, *, now: float) -> None:
        self.name = name
        self.spec = spec
        self.on_store_down = on_store_down
        self.holders = 0
        self.answered = 0
        """The number of the last claim that counted."""
        self._view = view
        self._is_places = spec.meter is Meter.PLACES
        self._lease = self._spent = 0
        self._ends_at = now
        self._claim: LeaseClaim | None = None
        self._claimed_at = self._turned_over_at = now
        self._is_under_way = False
        self._life = 0
        self._answered_at: float | None = None
        self._available = most_at_once(spec)
        self._wait_s = self._reset_s = 0.0
        self._dry = False
        self._waiting = self._demand = 0
        self._promised = self._need = 0
        self._largest = 0
        self._rate = 0.0
        self._contended_until = now
        self._used_at = now
        self._in_use = 0
        """By this worker, of what still matters; places, or units of any age that matters."""
        self._current = _Use(0, None, now)
        self._uses = {0: self._current}
        self._unsaid: dict[int, _Use] = {}

    def __repr__(self) -> str:
        return f"LeasedCounter({self.name!r}, spare={self._lease - self._spent}, in_use={self._in_use})"

    # ── as a limiter sees it ──────────────────────────────────────────────────

    def take(self, amount: int, *, now: float) -> int | None:
        if (amount <= self._lease - self._spent - self._promised and now < self._ends_at) or not amount:
            self._spent += amount
            self._demand += amount
            self._in_use += amount
            self._used_at = now
            self._view.busy[self.name] = None
            if self._is_places:
                return 0
            current = self._current
            current.used += amount
            current.last_at = now
            return current.number
        if self._view.is_alone(now):
            return self._take_alone(amount, now)
        self._demand += amount
        self._largest = max(self._largest, amount)
        self._used_at = now
        self._view.busy[self.name] = None
        return None

    def give_back(self, amount: int, slot: int, *, now: float) -> None:
        if self._is_places:
            self._in_use -= amount
            self._spent -= amount
            self._view.busy[self.name] = None
            if now < self._contended_until:
                self._view.urgent[self.name] = None
                self._view.press()
            return
        use = self._uses.get(slot)
        if use is None or not use.used:
            return
        returned = min(amount, use.used)
        use.used -= returned
        self._in_use -= returned
        unsaid = min(use.owed, returned)
        use.owed -= unsaid
        returned -= unsaid
        if use is self._current:  # in the slot of the lease: what was not said to be spent is there to be used again
            again = min(self._spent, returned)
            self._spent -= again
            returned -= again
        use.returned += returned
        if use.returned:
            self._unsaid[slot] = use
        self._view.busy[self.name] = None

    def charge(self, amount: int, *, now: float) -> None:
        self._view.busy[self.name] = None
        if self._is_places:
            self._in_use += amount
            self._spent += amount
            return
        covered = min(self.spare(now=now), amount)
        self._spent += covered
        self._note(covered, now)
        self._owe(amount - covered, now)

    def available(self, *, now: float) -> int:
        if not self._view.is_alone(now):
            return min(most_at_once(self.spec), self.spare(now=now) + self._available)
        self._forget_old(now)
        return max(self.spare(now=now), self._alone_ceiling() - self._in_use, 0)

    def wait_s(self, amount: int, *, now: float) -> float | None:
        if amount > most_at_once(self.spec):
            return None
        if amount <= self.spare(now=now) or (self._view.is_alone(now) and self._fits_alone(amount, now)):
            return 0.0
        return max(_LEAST_WAIT_S, self._wait_s - self._since_answer_s(now))

    def reset_s(self, *, now: float) -> float:
        return max(0.0, self._reset_s - self._since_answer_s(now))

    def is_idle(self, *, now: float) -> bool:
        self._forget_old(now)
        return self._in_use == 0 and self._claim is None and not self._unsaid and self._spent == 0 and self.spare(now=now) == 0

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:
        """Also ask for it: the next claim wants as much."""
        if self._view.is_alone(now) or amount > most_at_once(self.spec):
            return False
        if not self._is_dry(now):
            self._view.urgent[self.name] = None
        elif self._is_places and self._in_use < self.spec.ceiling:  # others have places, and say only now and then that one is free
            self._contended_until = now + CONTENDED_S
            if not is_patient:
                return False
            self._view.awaited[self.name] = None
        else:
            return False
        self._waiting += amount
        return True

    # ── as the exchange sees it ───────────────────────────────────────────────

    @property
    def is_engaged(self) -> bool:
        """Tell whether the store has to hear from it even when nothing happens."""
        return self._claim is not None or self._lease > 0 or (self._is_places and self._in_use > 0)

    @property
    def is_known(self) -> bool:
        """Tell whether the store has all that there was to say, as far as this worker knows."""
        return self._claim is None and self._life != 0

    def spare(self, *, now: float) -> int:
        """Give the units that may be used without asking."""
        return max(0, self._lease - self._spent) if now < self._ends_at else 0

    def claim(self, *, now: float) -> LeaseClaim | None:
        """Make the claim that is due, if any; one that was not answered is made again as it was."""
        if self._is_under_way:
            return None
        if self._claim is not None and now - self._claimed_at >= open_s(self.spec):
            self._claim = None  # whether it counted does not matter any more
        if self._claim is None and not self._make_claim(now):
            return None
        self._is_under_way = True
        return self._claim

    def note_lost(self, sequence: int) -> None:
        """The exchange failed: whether the claim counted is not known."""
        if self._claim is not None and self._claim.sequence == sequence:
            self._is_under_way = False

    def take_grant(self, grant: LeaseGrant, *, now: float) -> None:
        """Use what was granted, if this answers the claim under way."""
        claim = self._claim
        if claim is None or grant.sequence != claim.sequence:
            return
        self._claim = None
        self._is_under_way = False
        if grant.life == 0:
            self.begin_anew(now=now)
            if claim.want:  # somebody may wait for it
                self._waiting += claim.want
                self._view.urgent[self.name] = None
            return
        self._life = grant.life
        self.answered = grant.sequence
        self._answered_at = now
        self._available, self._reset_s, self._wait_s = grant.available, grant.reset_s, grant.wait_s
        self._dry = grant.granted < claim.spare + claim.want
        self._ends_at = self._claimed_at + self._view.lease_s
        self._lease = 0 if now >= self._ends_at or self._view.is_settling(now) else grant.granted
        self._promised = max(0, min(self._need, self._lease - self._spent))
        if self._promised:
            self._view.promised[self.name] = None
        self._place(grant.slot, now)
        self._view.busy[self.name] = None

    def serve(self) -> None:
        """Those who waited ask again now: until then, nobody else gets what was granted for them."""
        self._promised = 0

    def begin_anew(self, *, now: float) -> None:
        """The store knows nothing of what was told to it: tell what this worker used, and what still matters, once more."""
        self._life = self._lease = self._spent = 0
        self._view.busy[self.name] = None
        if self._is_places:
            return
        self._turn_over(None, now)
        self._forget_old(now)
        for number, use in self._uses.items():
            use.slot = None
            use.owed, use.returned = use.used, 0
            if use.owed:
                self._unsaid[number] = use

    # ── inside ────────────────────────────────────────────────────────────────

    def _make_claim(self, now: float) -> bool:
        self._forget_old(now)
        target = self._target(now)
        spare = self.spare(now=now)
        places = self._in_use if self._is_places else 0
        has_news = bool(self._spent or self._waiting or self._demand or self._unsaid) or spare > target or (places and not self._life)
        is_due = now - self._claimed_at >= RENEW_S and (spare > 0 or places > 0)
        if not has_news and not is_due:
            self._lease = self._lease if spare else 0
            return False
        kept = min(spare, target)
        self._claim = LeaseClaim(
            counter=self.name,
            spec=self.spec,
            sequence=self._view.next_sequence(),
            life=self._life,
            spent=0 if self._is_places else self._spent,
            held=places,
            spare=kept,
            want=min(target, most_at_once(self.spec)) - kept if target > kept else 0,
            returned=self._said_returned(),
            owed=self._said_owed(now),
        )
        self._lease, self._spent = kept, 0
        self._need = self._waiting + self._promised
        self._waiting = self._demand = 0
        self._claimed_at = now
        if now - self._current.opened_at >= open_s(self.spec) / _BUCKETS and self._rotates:
            self._turn_over(None, now)
        return True

    def _target(self, now: float) -> int:
        """Give how many units to hold from now on."""
        passed_s = now - self._turned_over_at
        if passed_s > 0:
            self._turned_over_at = now
            share = passed_s / (passed_s + _RATE_OVER_S)
            self._rate += (self._demand / passed_s - self._rate) * share
        if self._view.is_alone(now) or now - self._used_at >= IDLE_S:
            self._largest = self._promised = 0  # whoever waited has given up
            return 0
        wanted = self._waiting + self._promised
        ahead = min(self.spec.ceiling // (AHEAD_PARTS * self._view.workers), int(self._rate * self._view.lead_s))
        is_scarce = self._answered_at is None or self._available < _PLENTY_TIMES * (wanted + ahead)
        if ahead < self._largest or (wanted and is_scarce):
            return wanted  # a piece held ahead would be missing where somebody waits, and a small one helps nobody
        return wanted + ahead

    def _said_returned(self) -> tuple[tuple[int, int], ...]:
        said = []
        for number, use in list(self._unsaid.items()):
            if use.slot is not None:
                if use.returned:
                    said.append((use.slot, use.returned))
                    use.returned = 0
                if not use.owed:
                    del self._unsaid[number]
        return tuple(said)

    def _said_owed(self, now: float) -> tuple[tuple[float, int], ...]:
        """Give what is owed by age, near ages together as the youngest of them."""
        step_s = open_s(self.spec) / _OWED_PARTS
        said: list[tuple[float, int]] = []
        for number in sorted(self._unsaid):
            use = self._unsaid[number]
            if use.owed:
                age_s = now - use.last_at
                together = said.pop()[1] if said and int(said[-1][0] / step_s) == int(age_s / step_s) else 0
                said.append((age_s, together + use.owed))
                use.owed = 0
            if not use.returned:
                del self._unsaid[number]
        return tuple(said)

    def _place(self, slot: int, now: float) -> None:
        """Learn where the authority counts what was used since the claim was made."""
        if self._is_places:
            return
        for use in reversed(self._uses.values()):
            if use.slot is not None:
                break
            use.slot = slot
        current = self._current
        if current.slot != slot and (self.spec.meter is not Meter.GCRA or now - current.opened_at >= open_s(self.spec) / _BUCKETS):
            self._turn_over(slot, now)  # of a steady rate every grant has a slot of its own

    @property
    def _rotates(self) -> bool:
        return self.spec.meter in (Meter.SLIDING, Meter.GCRA)

    def _turn_over(self, slot: int | None, now: float) -> None:
        """Begin another stretch of the account."""
        current = self._current
        if not (current.used or current.owed or current.returned) and current.number not in self._unsaid:
            current.slot, current.opened_at = slot, now  # nobody used it: nobody has its number
            return
        current = self._current = _Use(current.number + 1, slot, now)
        self._uses[current.number] = current

    def _forget_old(self, now: float) -> None:
        """Forget the stretches whose use does not matter any more."""
        if self._is_places:
            return
        oldest = next(iter(self._uses.values()))
        while oldest is not self._current and self._is_over(oldest, now):
            self._in_use -= oldest.used
            self._uses.pop(oldest.number)
            self._unsaid.pop(oldest.number, None)
            oldest = next(iter(self._uses.values()))
        if oldest.used and self._is_over(oldest, now):
            self._turn_over(None, now)
            self._forget_old(now)

    def _is_over(self, use: _Use, now: float) -> bool:
        if self.spec.meter is Meter.CALENDAR:
            epoch_s, period = self._view.epoch_s, self.spec.period
            return period_at(use.last_at + epoch_s, period) < period_at(now + epoch_s, period)
        return now - use.last_at >= open_s(self.spec)

    def _note(self, amount: int, now: float) -> None:
        self._current.used += amount
        self._current.last_at = now
        self._in_use += amount
        self._used_at = now

    def _owe(self, amount: int, now: float) -> None:
        if amount:
            self._note(amount, now)
            self._current.owed += amount
            self._unsaid[self._current.number] = self._current

    def _take_alone(self, amount: int, now: float) -> int | None:
        """Judge by what this worker used itself."""
        if not self._fits_alone(amount, now):
            return None
        self._view.busy[self.name] = None
        if self._is_places:
            self._in_use += amount
            self._spent += amount
            return 0
        if self._rotates and now - self._current.opened_at >= open_s(self.spec) / _OWED_PARTS:
            self._turn_over(None, now)
        self._owe(amount, now)
        return self._current.number

    def _fits_alone(self, amount: int, now: float) -> bool:
        self._forget_old(now)
        return self._in_use + amount <= self._alone_ceiling()

    def _alone_ceiling(self) -> int:
        most = most_at_once(self.spec)
        if self.on_store_down is StoreDown.LOCAL_SHARE:
            return max(1, most // self._view.workers)
        return self._in_use + most if self.on_store_down is StoreDown.ALLOW else 0

    def _is_dry(self, now: float) -> bool:
        return self._dry and (self._claim is not None or self._since_answer_s(now) < DRY_S)

    def _since_answer_s(self, now: float) -> float:
        return 0.0 if self._answered_at is None else now - self._answered_at
