"""The engine model slows under load as an engine does, gives each call what it asked for, and forgets who left."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.mock.engine import Engine, EngineSettings, Sequence
from tidegate.mock.engine_driver import EngineDriver
from tidegate.testing import run_virtual

SMALL = EngineSettings(
    prefill_tokens_per_s=1_000, decode_tokens_per_s=100, single_tokens_per_s=40, batch=4, step_tokens=50, kv_tokens=400, max_waiting=3
)


def run_to_the_end(engine: Engine, *, until: float = 1e9) -> float:
    """Drive the engine until it has nothing to do; give the time."""
    now = 0.0
    while (due := engine.next_step_at()) is not None and due <= until:
        now = due
        engine.advance(now)
    return now


def time_of(sequences: list[tuple[int, int]], model: EngineSettings = SMALL) -> float:
    engine = Engine(model)
    for prompt_tokens, output_tokens in sequences:
        engine.submit(prompt_tokens, output_tokens, lambda _: None, now=0.0)
    return run_to_the_end(engine)


def test_one_call_alone_goes_at_its_own_speed() -> None:
    """40 tokens at 40 tokens per second, and a prompt of 50 at 1000 per second."""
    assert time_of([(0, 40)]) == pytest.approx(1.0)
    assert time_of([(50, 40)]) == pytest.approx(1.05)


def test_a_full_batch_goes_at_the_engines_speed() -> None:
    """Four sequences of 25 tokens make 100 tokens per second in all; the first step was begun by the first call alone."""
    assert time_of([(0, 25)] * 4) == pytest.approx(1.0, rel=0.03)
    assert time_of([(0, 25)] * 4) >= 1.0


def test_more_load_is_slower_for_each_and_more_for_all() -> None:
    """Up to the batch the time of each grows with the load, and so does what all get."""
    times = [time_of([(0, 25)] * calls) for calls in (1, 2, 3, 4)]
    assert times == sorted(times)
    assert len(set(times)) == 4
    rates = [calls * 25 / took for calls, took in zip((1, 2, 3, 4), times, strict=True)]
    assert rates == sorted(rates)


def test_beyond_the_batch_calls_wait_in_order() -> None:
    """The fifth starts when one of four has ended."""
    engine = Engine(SMALL)
    first: list[str] = []

    def noting(number: int) -> Callable[[int], None]:
        return lambda _: first.append(f"{number}")

    for number in range(5):
        engine.submit(0, 10, noting(number), now=0.0)
    assert (engine.statistics().running, engine.statistics().waiting) == (1, 4), "the first step began with the first call"
    engine.advance(engine.next_step_at() or 0.0)
    assert (engine.statistics().running, engine.statistics().waiting) == (4, 1)
    run_to_the_end(engine)
    assert first.index("4") > 10
    assert [first.count(str(number)) for number in range(5)] == [10] * 5


def test_a_long_prompt_slows_the_others() -> None:
    """While a prompt is read, steps take longer: the gap between a neighbour's tokens grows."""
    gaps: list[float] = []
    engine = Engine(SMALL)
    engine.submit(0, 30, lambda _: gaps.append(engine_now[0]), now=0.0)
    engine_now = [0.0]
    for step in range(30):
        due = engine.next_step_at()
        assert due is not None
        engine_now[0] = due
        if step == 10:
            engine.submit(100, 1, lambda _: None, now=due)
        engine.advance(due)
    between = [after - before for before, after in itertools.pairwise(gaps)]
    assert between[5] == pytest.approx(0.025)
    assert max(between) >= 0.075


def test_the_cache_bounds_what_runs() -> None:
    """Calls whose contexts do not fit together run one after the other; one larger than the cache runs alone."""
    engine = Engine(SMALL)
    for _ in range(3):
        engine.submit(200, 50, lambda _: None, now=0.0)
    engine.advance(engine.next_step_at() or 0.0)
    assert (engine.statistics().running, engine.statistics().waiting) == (1, 2)
    assert 0 < engine.statistics().kv_usage_ratio < 1
    run_to_the_end(engine)
    assert time_of([(5000, 1)]) > 5.0


def test_a_full_engine_says_so() -> None:
    """Beyond the places and those who may wait, nobody is taken."""
    engine = Engine(SMALL)
    taken = 0
    while not engine.full:
        engine.submit(0, 5, lambda _: None, now=0.0)
        taken += 1
    assert taken == SMALL.batch + SMALL.max_waiting


@pytest.mark.parametrize(("single", "fits"), [(24, False), (25, True), (100, True), (101, False)])
def test_impossible_speeds_are_refused(single: float, fits: bool) -> None:
    """One sequence is neither slower than its share of a full batch nor faster than all together."""
    if fits:
        EngineSettings(decode_tokens_per_s=100, batch=4, single_tokens_per_s=single)
    else:
        with pytest.raises(ValueError, match="between 25 and 100"):
            EngineSettings(decode_tokens_per_s=100, batch=4, single_tokens_per_s=single)


CALLS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40), st.floats(0, 2)), min_size=1, max_size=12)


@given(calls=CALLS, leaves=st.sets(st.integers(0, 11)), data=st.data())
@settings(deadline=None, max_examples=60)
def test_law_everybody_gets_their_tokens_and_nobody_more(
    calls: list[tuple[int, int, float]], leaves: set[int], data: st.DataObject
) -> None:
    """Whoever stays gets exactly what was asked; together never more than the decode speed; nothing is left at the end."""
    engine = Engine(SMALL)
    got = [0] * len(calls)
    told = [0] * len(calls)
    sequences: dict[int, Sequence] = {}

    def grant(number: int) -> None:
        told[number] += 1

    def granter(number: int) -> Callable[[int], None]:
        def take(tokens: int) -> None:
            got[number] += tokens
            grant(number)

        return take

    arrivals = sorted(range(len(calls)), key=lambda number: calls[number][2])
    departures = {number: data.draw(st.floats(0, 3)) + calls[number][2] for number in leaves if number < len(calls)}
    events = sorted([(calls[number][2], 0, number) for number in arrivals] + [(at, 1, number) for number, at in departures.items()])
    for at, kind, number in events:
        while (due := engine.next_step_at()) is not None and due <= at:
            engine.advance(due)
        if kind == 0:
            sequences[number] = engine.submit(calls[number][0], calls[number][1], granter(number), now=at)
        else:
            engine.cancel(sequences[number], now=at)
    ended_at = max(run_to_the_end(engine), events[-1][0])
    statistics = engine.statistics()
    assert (statistics.running, statistics.waiting, statistics.kv_usage_ratio) == (0, 0, 0.0)
    assert engine._reserved == 0
    assert statistics.output_tokens == sum(got)
    assert statistics.output_tokens <= SMALL.decode_tokens_per_s * ended_at + SMALL.batch
    for number, (_, output_tokens, _) in enumerate(calls):
        assert got[number] <= output_tokens
        if number not in leaves:
            assert got[number] == output_tokens
            assert told[number] == max(1, output_tokens)


def test_the_driver_steps_on_time_and_rests() -> None:
    """On a loop, tokens come when the model says, and no timer is left when all is done."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        driver = EngineDriver(SMALL)
        instants: list[float] = []
        done = asyncio.Event()
        began = loop.time()

        def take(_: int) -> None:
            instants.append(loop.time() - began)
            if len(instants) == 4:
                done.set()

        driver.submit(0, 4, take)
        await done.wait()
        assert driver._due is None
        left = driver.submit(0, 100, take)
        left.drop()
        left.drop()
        assert driver._due is None
        driver.close()
        return instants

    assert run_virtual(main()) == pytest.approx([0.025, 0.05, 0.075, 0.1])
