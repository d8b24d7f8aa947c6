"""One admitted request: what it holds of every counter it is under, until it is settled.

Invariants: what is held of a counter is what was taken from it and not given back; `reserve` and `move` change all counters or
none; a permit is ended once. A shadow rule that would have refused is left alone for the rest of the request, as if it had refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.domain.demand import Demand
from tidegate.domain.limits import PERIOD_S, CounterSpec, LimitMode, LimitRule, Meter, Resource, most_at_once
from tidegate.domain.principal import Limits
from tidegate.domain.statistics import LimitLevel
from tidegate.policy.metering.counter import Counter
from tidegate.ports import Denied, LimitState, Short, WindowState

_AMOUNT_OF = {Resource.TOKENS: 0, Resource.INPUT_TOKENS: 1, Resource.OUTPUT_TOKENS: 2, Resource.COST: 3}
"""Where a resource stands in the amounts of a demand; requests and places are not part of one."""
_SHOWN = frozenset({Resource.REQUESTS, Resource.TOKENS})
_MOST_SHOWN = 8  # windows in a response's headers: each is some sixty bytes there
_UNHELD = -1
"""The slot of a shadow rule that an exchange with the store would have to be waited for: what is used is charged, and nothing is held."""
_SHORT_RETRY_S = 1.0
_LONGEST_S = float("inf")


class RuleTally:
    """What one rule did."""

    __slots__ = ("denied", "would_deny")

    def __init__(self) -> None:
        self.denied = 0
        self.would_deny = 0


class Line:
    """One rule as it applies to one subject: whose use is counted, and the counter of it."""

    __slots__ = ("_most", "_most_of", "amount_of", "ceiling", "counter", "enforced", "is_place", "name", "rule", "shadow", "tally", "whose")

    def __init__(self, rule: LimitRule, counter: Counter, tally: RuleTally, *, name: str, whose: str) -> None:
        self.rule = rule
        self.tally = tally
        self.name = name
        self.whose = whose
        self.shadow = rule.mode is LimitMode.SHADOW
        self.ceiling = rule.spec.ceiling
        self.is_place = rule.spec.meter is Meter.PLACES
        self.amount_of = _AMOUNT_OF.get(rule.resource, -1)
        self.counter = counter
        self.enforced = counter.spec
        """What the counter was told to count; another line of the same counter may tell it otherwise."""
        self._most_of = counter.spec
        self._most = most_at_once(counter.spec)
        counter.holders += 1

    def __repr__(self) -> str:
        return f"Line({self.name}: {self.counter!r})"

    def use(self, counter: Counter) -> None:
        """Count with this counter from now on."""
        counter.holders += 1
        self.counter.holders -= 1
        self.counter = counter
        self.enforced = counter.spec

    def left(self, *, now: float) -> int:
        """Give what is left, for people: of the whole ceiling where this process has only a share of it."""
        left, here = self.counter.available(now=now), self.counter.spec.ceiling
        return left if here == self.ceiling else min(self.ceiling, left * self.ceiling // here)

    def most(self) -> int:
        """Give the most that one request can ever have."""
        spec = self.counter.spec
        if spec is not self._most_of:
            self._most_of, self._most = spec, most_at_once(spec)
        return self._most


class Account:
    """Everything that one subject is under. Lines that refuse stand before those that only watch."""

    __slots__ = ("admission", "dropped", "limits", "ones", "open", "own", "reservation", "shown", "used")

    def __init__(self, limits: Limits, own: Sequence[Line], ruled: Sequence[Line]) -> None:
        lines = sorted((*own, *ruled), key=lambda line: line.shadow)
        self.limits = limits
        self.own = tuple(own)
        self.admission = tuple(line for line in lines if line.amount_of < 0)
        self.ones = (1,) * len(self.admission)
        """What an admission takes of each of them."""
        self.reservation = tuple(line for line in lines if line.amount_of >= 0)
        shown = [line for line in lines if not line.shadow and line.rule.resource in _SHOWN]
        self.shown = tuple((line, span_of(line.rule.spec)) for line in shown[:_MOST_SHOWN])
        """The lines that headers tell of, with the length of their windows in seconds."""
        self.open = 0
        """Permits not yet ended."""
        self.used = True
        """Since it was last asked."""
        self.dropped = False

    def drop(self) -> None:
        """Let its counters go once its last permit has ended."""
        self.dropped = True
        if self.open == 0:
            self.release()

    def state(self, *, now: float) -> LimitState:
        """Give what is left, for people."""
        requests: WindowState | None = None
        tokens: WindowState | None = None
        windows: list[WindowState] = []
        for line, span_s in self.shown:
            window = WindowState(line.ceiling, line.left(now=now), line.counter.reset_s(now=now), line.rule.name, span_s)
            windows.append(window)
            if line.amount_of < 0:
                if requests is None or window.remaining < requests.remaining:
                    requests = window
            elif tokens is None or window.remaining < tokens.remaining:
                tokens = window
        return LimitState(requests, tokens, tuple(windows))

    def release(self) -> None:
        for line in (*self.admission, *self.reservation):
            line.counter.holders -= 1


class PermitOwner(Protocol):
    outstanding: int
    held_tokens: int


class LimiterPermit:
    """Implements `ports.Permit`."""

    __slots__ = ("_account", "_ended", "_held", "_held_tokens", "_more", "_owner", "_refused_by", "_slots", "_taken")

    def __init__(self, owner: PermitOwner, account: Account, taken: list[int | None]) -> None:
        self._owner = owner
        self._account = account
        self._taken = taken
        """The slot of each admission line; None where a shadow rule would have refused."""
        self._slots: list[int | None] | None = None
        """Likewise of each reservation line, once something is reserved."""
        self._held: list[int] = []
        """What is held of each reservation line."""
        self._more: list[tuple[int, int, int]] | None = None
        """What is held beside the first take: (line, slot, amount), the latest last."""
        self._held_tokens = 0
        self._refused_by: RuleTally | None = None
        """Whose refusal was the last word; one that another target did not meet is none of the request."""
        self._ended = False

    def __repr__(self) -> str:
        return f"LimiterPermit(held_tokens={self._held_tokens}, ended={self._ended})"

    def reserve(self, demand: Demand, *, now: float) -> Denied | Short | None:
        assert not self._ended, "a permit that has ended cannot reserve"
        assert self._slots is None, "tokens are reserved once"
        lines = self._account.reservation
        amounts = _amounts(demand)
        wanted = [amounts[line.amount_of] for line in lines]
        slots = take_all(lines, wanted, now=now)
        if slots is None:
            refusal = refusal_of(lines, wanted, now=now)
            self._refused_by = refusal[0].tally
            return refusal[1]
        self._refused_by = None
        self._slots = slots
        self._held = [0 if slot == _UNHELD else amount for slot, amount in zip(slots, wanted, strict=True)] if _UNHELD in slots else wanted
        self._hold_tokens(amounts[0])
        return None

    def move(self, demand: Demand, *, now: float) -> Denied | None:
        amounts = _amounts(demand)
        return self._change([amounts[line.amount_of] for line in self._account.reservation], amounts[0], now)

    def remaining_tokens(self, *, now: float) -> int | None:
        left: int | None = None
        for line in self._account.reservation:
            if line.amount_of in (0, 1):
                available = line.counter.available(now=now)
                if left is None or available < left:
                    left = available
        return left

    def ceiling_tokens(self) -> int | None:
        return self._most(0)

    def ceiling_output_tokens(self) -> int | None:
        return self._most(_AMOUNT_OF[Resource.OUTPUT_TOKENS])

    def _most(self, amount_of: int) -> int | None:
        """Give the most that one request can ever have of an amount; None where nothing limits it."""
        least: int | None = None
        for line in self._account.reservation:
            if line.amount_of == amount_of:
                most = line.most()
                if least is None or most < least:
                    least = most
        return least

    def state(self, *, now: float) -> LimitState:
        return self._account.state(now=now)

    def settle(self, used: Demand, *, now: float) -> None:
        lines = self._account.reservation
        if lines:
            amounts = _amounts(used)
            slots = self._slots
            for index, line in enumerate(lines):
                excess = amounts[line.amount_of]
                if slots is not None:
                    if slots[index] is None:
                        continue
                    excess -= self._held[index]
                if excess < 0:
                    self._return(index, -excess, now)
                elif excess > 0:
                    line.counter.charge(excess, now=now)
        self._end(now)

    def cancel(self, *, now: float) -> None:
        for line, slot in zip(self._account.admission, self._taken, strict=True):
            if slot is not None and not line.is_place:
                line.counter.give_back(1, slot, now=now)
        self.settle(Demand(), now=now)

    def _change(self, wanted: list[int], tokens: int, now: float) -> Denied | None:
        """Hold `wanted` of each line instead of what is held: take what is more, then give back what is less."""
        assert not self._ended, "a permit that has ended holds nothing"
        slots, held = self._slots, self._held
        assert slots is not None, "what was never reserved cannot change"
        lines = self._account.reservation
        more = self._more = self._more if self._more is not None else []
        before = len(more)
        for index, line in enumerate(lines):
            lacks = wanted[index] - held[index]
            if lacks <= 0 or slots[index] is None:
                continue
            slot = line.counter.take(lacks, now=now)
            if slot is not None:
                more.append((index, slot, lacks))
            elif line.counter.may_come(lacks, now=now):
                continue  # not held, and charged at the end
            elif line.shadow:
                line.tally.would_deny += 1
            else:
                for taken, taken_in, amount in more[before:]:
                    lines[taken].counter.give_back(amount, taken_in, now=now)
                del more[before:]
                self._refused_by = line.tally
                return _denied(line, lacks, line.counter.wait_s(lacks, now=now), now=now)
        self._refused_by = None
        for index, _, amount in more[before:]:
            held[index] += amount
        for index in range(len(lines)):
            spare = held[index] - wanted[index]
            if spare > 0 and slots[index] is not None:
                self._return(index, spare, now)
                held[index] = wanted[index]
        self._hold_tokens(tokens)
        return None

    def _return(self, index: int, amount: int, now: float) -> None:
        """Give back a part of what is held of a line, the latest first."""
        counter = self._account.reservation[index].counter
        more = self._more
        if more:
            for place in range(len(more) - 1, -1, -1):
                line, slot, there = more[place]
                if line == index and there and amount:
                    part = min(amount, there)
                    counter.give_back(part, slot, now=now)
                    more[place] = (line, slot, there - part)
                    amount -= part
        assert self._slots is not None
        first = self._slots[index]
        if amount and first is not None:
            counter.give_back(amount, first, now=now)

    def _hold_tokens(self, tokens: int) -> None:
        self._owner.held_tokens += tokens - self._held_tokens
        self._held_tokens = tokens

    def _end(self, now: float) -> None:
        assert not self._ended, "a permit is ended exactly once"
        self._ended = True
        if self._refused_by is not None:
            self._refused_by.denied += 1
        account = self._account
        taken = self._taken
        for index, line in enumerate(account.admission):
            slot = taken[index] if line.is_place else None
            if slot is not None:
                line.counter.give_back(1, slot, now=now)
        account.open -= 1
        if account.dropped and account.open == 0:
            account.release()
        self._owner.outstanding -= 1
        self._owner.held_tokens -= self._held_tokens


def take_all(lines: Sequence[Line], wanted: Sequence[int], *, now: float) -> list[int | None] | None:
    """Take from every line what is wanted of it; None: a line that may refuse did, and nothing was taken."""
    slots: list[int | None] = []
    for index, line in enumerate(lines):
        amount = wanted[index]
        slot = line.counter.take(amount, now=now) if amount else 0
        if slot is None:
            if not line.shadow:
                for taken, taken_in, given in zip(lines, slots, wanted, strict=False):
                    if taken_in is not None and given:
                        taken.counter.give_back(given, taken_in, now=now)
                return None
            if line.counter.may_come(amount, now=now):
                slot = _UNHELD
                if line.amount_of < 0:
                    line.counter.charge(amount, now=now)
            else:
                line.tally.would_deny += 1
        slots.append(slot)
    return slots


def refusal_of(lines: Sequence[Line], wanted: Sequence[int], *, now: float) -> tuple[Line, Denied | Short]:
    """Say which line refuses and for how long: of several the one that will refuse longest, so that the wait is true for all."""
    longest: tuple[float, Line, int, float | None] | None = None
    may_come = True
    for line, amount in zip(lines, wanted, strict=True):
        if line.shadow or not amount:
            continue
        wait_s = line.counter.wait_s(amount, now=now)
        if wait_s == 0:
            continue
        may_come = may_come and line.counter.may_come(amount, now=now, is_patient=True)
        weight = _LONGEST_S if wait_s is None else wait_s
        if longest is None or weight > longest[0]:
            longest = (weight, line, amount, wait_s)
    if longest is None:  # it would fit now: a lease came between the two looks
        line, amount = next((line, amount) for line, amount in zip(lines, wanted, strict=True) if not line.shadow and amount)
        return line, Short(_denied(line, amount, _SHORT_RETRY_S, now=now))
    _, line, amount, wait_s = longest
    if may_come and wait_s is not None:
        for other, needed in zip(lines, wanted, strict=True):  # what fits now is asked for too, or others may have it by then
            if not other.shadow and needed and other.counter.wait_s(needed, now=now) == 0:
                other.counter.may_come(needed, now=now)
        return line, Short(_denied(line, amount, _SHORT_RETRY_S, now=now))
    return line, _denied(line, amount, wait_s, now=now)


def _denied(line: Line, requested: int, wait_s: float | None, *, now: float) -> Denied:
    return Denied(line.rule.name, line.rule.resource, line.ceiling, line.left(now=now), requested, wait_s, line.whose, line.rule.spec)


def _amounts(demand: Demand) -> tuple[int, int, int, int]:
    """Give a demand's amounts in the order of `_AMOUNT_OF`."""
    return (demand.input_tokens + demand.output_tokens, demand.input_tokens, demand.output_tokens, demand.cost_micro)


def level_of(line: Line, *, now: float) -> LimitLevel:
    """Say how full a limit is for whom it counts."""
    spec = line.rule.spec
    return LimitLevel(
        counter=line.name,
        rule=line.rule.name,
        whose=line.name.partition(";")[2] or line.whose,
        resource=line.rule.resource,
        meter=spec.meter,
        ceiling=line.ceiling,
        left=min(line.ceiling, line.left(now=now)),
        span_s=0 if line.is_place else span_of(spec),
        is_shadow=line.shadow,
    )


def span_of(spec: CounterSpec) -> int:
    """Give how long a window lasts, in whole seconds."""
    return PERIOD_S[spec.period] if spec.meter is Meter.CALENDAR else max(1, round(spec.span_s))
