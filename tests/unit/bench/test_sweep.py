"""Which rate a sweep tries next, and when it knows enough."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.bench.sweep import HIGHEST_PER_S, LEAST_PER_S, MAX_STEPS, StepResult, SweepEnd, next_step


def _step(rate_per_s: float, limit_per_s: float) -> StepResult:
    """Give what a target that holds `limit_per_s` gives."""
    good = min(rate_per_s, limit_per_s)
    return StepResult(rate_per_s, rate_per_s, good, 0.1 if good == rate_per_s else 3.0, valid=True, success_ratio=good / rate_per_s)


def _sweep(limit_per_s: float, start_per_s: float) -> tuple[SweepEnd, list[StepResult]]:
    history: list[StepResult] = []
    while True:
        rate = next_step(history, start_per_s=start_per_s)
        if isinstance(rate, SweepEnd):
            return rate, history
        history.append(_step(rate, limit_per_s))


@given(st.floats(0.02, 50_000), st.sampled_from([0.5, 1.0, 10.0, 300.0]))
def test_the_limit_is_found_within_a_tenth(limit_per_s: float, start_per_s: float) -> None:
    """Law: whatever the target holds and wherever the sweep begins, a rate little below the limit is found."""
    end, history = _sweep(limit_per_s, start_per_s)
    assert end.saturation_per_s is not None
    assert limit_per_s / 1.17 <= end.saturation_per_s <= limit_per_s / 0.95 * 1.0001
    assert len(history) <= MAX_STEPS


def test_a_sweep_begins_doubles_and_closes_in() -> None:
    """From the start it doubles; between a rate that held and one that did not it takes the geometric middle."""
    assert 1.0 == next_step([])
    assert 2.0 == next_step([_step(1, 3)])
    assert pytest.approx(8**0.5) == next_step([_step(1, 3), _step(2, 3), _step(4, 3)])


def test_a_target_that_holds_nothing_is_told_so() -> None:
    """Down to a request in 100 s no rate held, and there is no saturation."""
    end, history = _sweep(0.0001, 1.0)
    assert end.saturation_per_s is None
    assert "No rate held" in end.reason
    assert LEAST_PER_S <= history[-1].rate_per_s < 2 * LEAST_PER_S


def test_a_target_that_holds_everything_is_told_so() -> None:
    """The sweep ends where one machine's sending ends."""
    end, history = _sweep(1e9, 1.0)
    assert history[-1].rate_per_s == end.saturation_per_s
    assert "the target may take more" in end.reason
    assert HIGHEST_PER_S / 2 < history[-1].rate_per_s <= HIGHEST_PER_S


def test_the_number_of_steps_is_bounded() -> None:
    """However the steps went, the last one is the last."""
    up = [_step(1.01**number, 1e9) for number in range(MAX_STEPS)]
    down = [_step(100 * 0.99**number, 0.001) for number in range(MAX_STEPS)]
    both = [_step(1, 5), *[_step(1_000 - number, 5) for number in range(MAX_STEPS)]]
    ends = [next_step(history) for history in (up, down, both)]
    assert [up[-1].rate_per_s, None, 1] == [end.saturation_per_s if isinstance(end, SweepEnd) else end for end in ends]


GOOD = _step(8, 100)


@pytest.mark.parametrize(
    "bad",
    [
        msgspec.structs.replace(GOOD, valid=False),
        msgspec.structs.replace(GOOD, success_ratio=0.98),
        msgspec.structs.replace(GOOD, goodput_per_s=7.5),
        msgspec.structs.replace(GOOD, achieved_per_s=7.1, goodput_per_s=7.1),
        msgspec.structs.replace(GOOD, ttft_p99_s=0.6),
        msgspec.structs.replace(GOOD, ttft_p99_s=None),
    ],
)
def test_every_measure_can_fail_a_step(bad: StepResult) -> None:
    """A step that is invalid, fails too often, is not good enough, was not sent, or is slow, is a rate that does not hold."""
    assert 16 == next_step([GOOD], ttft_p99_s=0.5)
    assert 4 == next_step([bad], ttft_p99_s=0.5)


def test_a_client_at_its_end_is_named() -> None:
    """Where the client was the bottleneck, the target's limit is not known, and the report says so."""
    end = next_step([_step(10, 100), msgspec.structs.replace(_step(10.5, 100), valid=False)])
    assert isinstance(end, SweepEnd)
    assert "the client was the bottleneck" in end.reason


def test_what_held_above_a_failure_was_luck() -> None:
    """The search goes on below the lowest rate that failed."""
    assert 5 == next_step([_step(16, 100), _step(10, 2)])
