"""A use that is told late is counted where it belongs."""

from __future__ import annotations

import pytest

from tidegate.domain.limits import CounterSpec, Meter
from tidegate.policy.metering.sliding_window import SlidingWindow

SPEC = CounterSpec(Meter.SLIDING, 100, 60.0)


def test_a_late_use_leaves_when_it_would_have_left() -> None:
    """It goes into its own slot, next to what is there, and makes no other use leave earlier or later."""
    window = SlidingWindow(SPEC, origin=0.0)
    assert window.take(50, now=30.0) is not None
    window.charge(10, now=10.0)
    window.charge(10, now=10.0)
    assert 30 == window.available(now=30.0)
    assert 50 == window.available(now=70.2)
    assert 100 == window.available(now=90.2)


def test_a_use_that_has_left_the_window_is_nothing() -> None:
    """Told after its time, it takes nothing away."""
    window = SlidingWindow(SPEC, origin=0.0)
    assert window.take(1, now=100.0) is not None
    window.charge(50, now=20.0)
    assert 99 == window.available(now=100.0)


def test_a_late_use_that_does_not_fit_is_debt() -> None:
    """What its slot has no room for is carried from now on."""
    window = SlidingWindow(SPEC, origin=0.0)
    assert window.take(90, now=30.0) is not None
    window.charge(30, now=10.0)
    window.charge(5, now=9.0)
    assert 0 == window.available(now=30.0)
    assert window.wait_s(1, now=30.0) == pytest.approx(60.1, abs=0.01)
    assert 100 == window.available(now=150.5)
