"""Rates: asked, sent and come."""

from __future__ import annotations

import pytest
from tests.unit.bench.runs import LENIENT, answer, failure, planned

from tidegate.bench.outcome import judge
from tidegate.bench.sample import End, Sample
from tidegate.bench.throughput import Rates, Throughput, Window


def rates(samples: list[Sample], *, ends_s: float = 60.0, closed_loop: bool = False) -> Rates:
    counted = Throughput(Window(0.0, ends_s, closed_loop))
    for sample in samples:
        counted.add(judge(sample, planned(), LENIENT))
    return counted.rates()


def test_a_server_that_keeps_up_gives_the_rate_of_the_load() -> None:
    """Answers that take three of sixty seconds do not make it five per cent less."""
    found = rates([answer(due_at=index / 20, e2e_s=3.0) for index in range(1200)])
    assert [20.0, 20.0, pytest.approx(20.0, rel=0.002), pytest.approx(2000.0, rel=0.002)] == [
        found.asked,
        found.sent,
        found.ok,
        found.tokens_out,
    ]
    assert (found.ok, 1.0) == (found.good, found.sent_ratio)


@pytest.mark.parametrize("load_per_s", [15, 20, 40])
def test_an_overloaded_server_gives_its_own_rate(load_per_s: int) -> None:
    """Ten a second is what it can do, however many are asked of it and however long they wait."""
    samples = [answer(due_at=index / load_per_s, e2e_s=(index + 1) / 10 - index / load_per_s) for index in range(60 * load_per_s)]
    found = rates(samples)
    assert [float(load_per_s), pytest.approx(10.0, rel=0.01)] == [found.sent, found.ok]


def test_one_straggler_does_not_stretch_the_run() -> None:
    """An answer two minutes after all others leaves the rate as it is."""
    samples = [answer(due_at=index / 20) for index in range(1199)] + [answer(due_at=59.95, e2e_s=120.0)]
    assert pytest.approx(20.0, rel=0.01) == rates(samples).ok


def test_long_answers_to_a_short_load_come_at_its_rate() -> None:
    """Five answers of ten seconds each to five requests of one second come as they were asked for, five a second."""
    found = rates([answer(due_at=index / 5, e2e_s=10.0) for index in range(5)], ends_s=1.0)
    assert 5.0 == found.ok


def test_failures_are_sent_but_do_not_come() -> None:
    """Half of the requests fail at once."""
    samples = [answer(due_at=index / 10) if index % 2 else failure(due_at=index / 10) for index in range(600)]
    found = rates(samples)
    assert [10.0, pytest.approx(5.0, rel=0.01)] == [found.sent, found.ok]


def test_requests_sent_after_the_end_were_not_sent_in_time() -> None:
    """A client that falls behind does not catch up after the run."""
    late = [answer(due_at=59.0, lag_s=2.0, e2e_s=3.0) for _ in range(3)]
    found = rates([answer(due_at=1.0) for _ in range(7)] + late)
    assert pytest.approx(0.7) == found.sent_ratio


def test_a_closed_loop_is_asked_for_no_rate_and_counts_to_its_last_answer() -> None:
    """Ten at once, a second each, twenty seconds of sixty: ten a second."""
    samples = [answer(due_at=float(second), e2e_s=1.0) for second in range(20) for _ in range(10)]
    found = rates(samples, closed_loop=True)
    assert (None, None, 10.0, 10.0) == (found.asked, found.sent_ratio, found.sent, found.ok)


def test_a_closed_loop_leaves_out_what_ends_after_its_time() -> None:
    """Its length is the window then."""
    samples = [answer(due_at=float(second), e2e_s=1.0) for second in range(21)]
    assert 1.0 == rates(samples, ends_s=20.0, closed_loop=True).ok


def test_a_run_that_was_ended_asks_for_less() -> None:
    """What was due after its end is not missing."""
    counted = Throughput(Window(0.0, 60.0))
    counted.end_at(30.0)
    for index in range(600):
        due_at = index / 10
        sample = answer(due_at=due_at) if due_at < 30.0 else failure(end=End.NOT_SENT, due_at=due_at)
        counted.add(judge(sample, planned(), LENIENT))
    assert 10.0 == pytest.approx(counted.rates().asked or 0.0, rel=0.01)


def test_no_time_and_no_requests_give_no_rates() -> None:
    """There is nothing to divide by, or nothing was due."""
    assert [Rates(), Rates()] == [rates([answer()], ends_s=0.0), rates([])]
    assert [0.0, None] == [rates([failure()]).ok, Rates().sent_ratio]
