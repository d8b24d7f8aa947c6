"""Use from one boundary of the calendar to the next, in UTC. What was used beyond the ceiling is owed to the periods that follow.

`epoch_s` is what the monotonic clock lacks to the time of day: seconds since 1970 minus `now`, taken once. Invariants: no period
admits more than the ceiling; a period begins with what the ones before it used beyond theirs.
"""

from __future__ import annotations

from tidegate.domain.limits import CounterSpec, Period
from tidegate.policy.metering.counter import Counter

_HOUR_S = 3600
_DAY_S = 86_400
_MONTHS = 12
_ROUNDING_S = 1e-6  # a time that was computed as a boundary is beyond it, not a rounding error before it


class CalendarWindow(Counter):
    """A slot is the number of a period since 1970."""

    __slots__ = ("_ends_at", "_epoch_s", "_period", "_used")

    def __init__(self, spec: CounterSpec, *, epoch_s: float) -> None:
        self.spec = spec
        self.holders = 0
        self._epoch_s = epoch_s
        self._period = 0
        self._ends_at = 0.0
        """When the running period ends: seconds since 1970."""
        self._used = 0
        """In this period, with what is owed."""

    def __repr__(self) -> str:
        return f"CalendarWindow({self._used} of {self.spec.ceiling} per {self.spec.period})"

    def take(self, amount: int, *, now: float) -> int | None:
        self._advance(now)
        if self._used + amount > self.spec.ceiling:
            return None
        self._used += amount
        return self._period

    def give_back(self, amount: int, slot: int, *, now: float) -> None:
        self._advance(now)
        if slot == self._period:
            self._used -= min(amount, self._used)

    def charge(self, amount: int, *, now: float) -> None:
        self._advance(now)
        self._used += amount

    def available(self, *, now: float) -> int:
        self._advance(now)
        return max(0, self.spec.ceiling - self._used)

    def wait_s(self, amount: int, *, now: float) -> float | None:
        if amount > self.spec.ceiling:
            return None
        self._advance(now)
        return self._leaves_s(self._used + amount - self.spec.ceiling, now)

    def reset_s(self, *, now: float) -> float:
        self._advance(now)
        return self._leaves_s(self._used, now)

    def is_idle(self, *, now: float) -> bool:
        self._advance(now)
        return self._used == 0

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:  # noqa: ARG002  the Protocol's
        return False

    def _leaves_s(self, amount: int, now: float) -> float:
        """Seconds until `amount` of the use is forgotten: every boundary forgets a ceiling's worth."""
        if amount <= 0:
            return 0.0
        boundaries = -(-amount // self.spec.ceiling)
        return starts_at(self._period + boundaries, self.spec.period) - (now + self._epoch_s)

    def _advance(self, now: float) -> None:
        at = now + self._epoch_s + _ROUNDING_S
        if at < self._ends_at:
            return
        period = period_at(at, self.spec.period)
        self._used = max(0, self._used - self.spec.ceiling * (period - self._period))
        self._period = period
        self._ends_at = starts_at(period + 1, self.spec.period)


def period_at(at: float, period: Period) -> int:
    """Give the number of the period since 1970 that holds a time (seconds since 1970)."""
    if period is Period.HOUR:
        return int(at // _HOUR_S)
    days = int(at // _DAY_S)
    return days if period is Period.DAY else _month_of(days)


def starts_at(number: int, period: Period) -> float:
    """Give when a period begins, in seconds since 1970."""
    if period is Period.HOUR:
        return float(number * _HOUR_S)
    return float((number if period is Period.DAY else _first_day_of(number)) * _DAY_S)


def _first_day_of(month: int) -> int:
    """Give the days from 1970-01-01 to the first of a month, numbered from January 1970 (Hinnant's `days_from_civil`)."""
    year, month_index = divmod(month + 1970 * _MONTHS, _MONTHS)
    year -= month_index < 2  # noqa: PLR2004  a year that begins in March has its leap day last
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month_index + 10) % _MONTHS) + 2) // 5
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _month_of(days: int) -> int:
    """Give the month that holds a day, numbered from January 1970: a guess that is at most one too high."""
    month = int(days / 30.436875) + 1  # the mean length of a month
    while _first_day_of(month) > days:
        month -= 1
    return month
