"""The other three meters: a steady rate, a period of the calendar, places."""

from __future__ import annotations

import calendar

import pytest

from tidegate.domain.limits import CounterSpec, Meter, Period
from tidegate.policy.metering.calendar_window import CalendarWindow, period_at, starts_at
from tidegate.policy.metering.gcra import Gcra
from tidegate.policy.metering.places import Places


def rate(ceiling: int, burst: int, *, span_s: float = 60.0) -> Gcra:
    return Gcra(CounterSpec(Meter.GCRA, ceiling, span_s, burst), origin=0.0)


def per(period: Period, ceiling: int, *, epoch_s: float = 0.0) -> CalendarWindow:
    return CalendarWindow(CounterSpec(Meter.CALENDAR, ceiling, period=period), epoch_s=epoch_s)


def utc(year: int, month: int, day: int, hour: int = 0) -> float:
    return float(calendar.timegm((year, month, day, hour, 0, 0)))


def test_a_rate_gives_its_burst_and_then_one_at_a_time() -> None:
    """Sixty a minute with a burst of three: three at once, then one each second."""
    one = rate(60, 3)
    assert [one.take(1, now=0.0) is not None for _ in range(4)] == [True, True, True, False]
    assert one.available(now=0.0) == 0
    assert one.wait_s(1, now=0.0) == pytest.approx(1.0, abs=1e-5)
    assert one.take(1, now=1.0) is not None
    assert one.take(1, now=1.5) is None
    assert one.reset_s(now=1.5) == pytest.approx(2.5, abs=1e-5)
    assert not one.is_idle(now=3.9)
    assert one.is_idle(now=4.0)
    assert repr(one) == "Gcra(60 in 60 s, burst=3)"


def test_a_rate_never_gives_more_than_its_burst_at_once() -> None:
    """A burst of nothing is one of one; an amount above it has no time to wait for."""
    assert rate(60, 3).wait_s(4, now=0.0) is None
    assert rate(60, 0).take(1, now=0.0) is not None
    assert rate(60, 3).wait_s(3, now=0.0) == 0.0
    assert rate(60, 3).reset_s(now=0.0) == 0.0
    assert not rate(60, 3).may_come(1, now=0.0)


def test_debt_lengthens_the_line() -> None:
    """Ten units too many at one a second are paid after ten seconds."""
    one = rate(60, 1)
    one.charge(11, now=0.0)
    assert one.wait_s(1, now=0.0) == pytest.approx(11.0, abs=1e-5)
    assert one.take(1, now=10.9) is None
    assert one.take(1, now=11.0) is not None


def test_only_what_still_lies_ahead_is_given_back() -> None:
    """Of ten seconds' worth taken at 0, four have passed at 4; giving back all ten frees six."""
    one = rate(60, 10)
    slot = one.take(10, now=0.0)
    assert slot is not None
    one.give_back(10, slot, now=4.0)
    assert one.available(now=4.0) == 10
    one.give_back(10, slot, now=20.0)
    assert one.available(now=20.0) == 10


def test_another_rate_keeps_what_is_in_use() -> None:
    """Half of the line at twice the speed is as many units."""
    one = rate(60, 10)
    one.take(10, now=0.0)
    one.spec = CounterSpec(Meter.GCRA, 120, 60.0, 10)
    assert one.available(now=0.0) == 0
    assert one.available(now=2.5) == 5


def test_a_day_begins_at_midnight_utc() -> None:
    """The clock of the process may show anything: what counts is the time of day that it stands for."""
    noon = utc(2026, 2, 3, 12)
    one = per(Period.DAY, 100, epoch_s=noon - 1000.0)
    slot = one.take(90, now=1000.0)
    assert slot == int(noon // 86_400)
    assert one.available(now=1000.0) == 10
    assert one.wait_s(11, now=1000.0) == 43_200.0
    assert one.wait_s(10, now=1000.0) == 0.0
    assert one.wait_s(101, now=1000.0) is None
    assert one.reset_s(now=1000.0) == 43_200.0
    one.give_back(30, slot, now=1000.0)
    assert one.available(now=1000.0) == 40
    assert one.take(100, now=1000.0 + 43_200.0) == slot + 1
    one.give_back(30, slot, now=1000.0 + 43_200.0)
    assert one.available(now=1000.0 + 43_200.0) == 0
    assert repr(one) == "CalendarWindow(100 of 100 per day)"


def test_what_was_used_beyond_a_period_is_owed_to_the_next_ones() -> None:
    """Two and a half days' worth at once leaves half a day's on the third."""
    one = per(Period.DAY, 100)
    assert one.is_idle(now=0.0)
    one.charge(250, now=0.0)
    assert one.take(1, now=86_400.0) is None
    assert one.wait_s(60, now=0.0) == 3 * 86_400.0
    assert one.wait_s(50, now=0.0) == 2 * 86_400.0
    assert one.reset_s(now=0.0) == 3 * 86_400.0
    assert one.available(now=2 * 86_400.0) == 50
    assert not one.is_idle(now=2 * 86_400.0)
    assert one.is_idle(now=3 * 86_400.0)
    assert not one.may_come(1, now=0.0)


@pytest.mark.parametrize(
    ("period", "at", "ends"),
    [
        (Period.HOUR, utc(2026, 2, 3, 12) + 59.5, utc(2026, 2, 3, 13)),
        (Period.MONTH, utc(2026, 2, 3), utc(2026, 3, 1)),
        (Period.MONTH, utc(2024, 2, 29, 23), utc(2024, 3, 1)),
        (Period.MONTH, utc(2026, 12, 31, 23), utc(2027, 1, 1)),
        (Period.MONTH, utc(1970, 1, 1), utc(1970, 2, 1)),
        (Period.MONTH, utc(2100, 2, 28), utc(2100, 3, 1)),
    ],
)
def test_hours_and_months_end_when_the_calendar_says(period: Period, at: float, ends: float) -> None:
    """Leap years, the turn of a year, and the century that is none."""
    one = per(period, 10)
    one.take(10, now=at)
    assert one.wait_s(1, now=at) == ends - at
    assert one.take(10, now=ends) is not None


def test_months_are_as_the_calendar_has_them() -> None:
    """Every month of 200 years begins where the calendar module says."""
    for number in range(200 * 12):
        year, month = divmod(number, 12)
        first = utc(1970 + year, month + 1, 1)
        assert starts_at(number, Period.MONTH) == first
        assert (period_at(first, Period.MONTH), period_at(first - 1, Period.MONTH)) == (number, number - 1)


def test_places_are_taken_while_they_are_used() -> None:
    """The third waits; nobody knows for how long, so a second is said."""
    one = Places(CounterSpec(Meter.PLACES, 2))
    assert one.is_idle(now=0.0)
    assert (one.take(1, now=0.0), one.take(1, now=0.0), one.take(1, now=0.0)) == (0, 0, None)
    assert (one.available(now=0.0), one.wait_s(1, now=0.0), one.wait_s(3, now=0.0)) == (0, 1.0, None)
    one.give_back(1, 0, now=5.0)
    assert (one.available(now=5.0), one.wait_s(1, now=5.0), one.reset_s(now=5.0)) == (1, 0.0, 1.0)
    one.charge(2, now=5.0)
    assert (one.available(now=5.0), repr(one), one.may_come(1, now=5.0)) == (0, "Places(3 of 2)", False)
    one.give_back(3, 0, now=5.0)
    assert (one.reset_s(now=5.0), one.is_idle(now=5.0)) == (0.0, True)
    with pytest.raises(AssertionError):
        one.give_back(1, 0, now=5.0)
