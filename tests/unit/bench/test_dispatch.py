"""When requests are sent, how many at once, and what is told of it."""

import asyncio
import time

import pytest
from tests.unit.bench.carrying_out import WORDS, carry_out, pool_for, requests

from tidegate.bench.dispatch import Dispatcher, GapBook, Share
from tidegate.bench.plan import PlannedRequest, Stage, Target
from tidegate.bench.reading import Answer
from tidegate.bench.sample import End, Sample
from tidegate.testing import Script, ScriptedUpstream


def test_an_open_loop_sends_at_the_instants_whatever_becomes_of_the_answers() -> None:
    """Ten requests of which none is answered before all are sent."""

    async def story() -> list[Sample]:
        async with ScriptedUpstream(Script(headers_s=0.3)) as upstream:
            samples, report = await carry_out(requests(10, every_s=0.01), Target(upstream.base_url, "m"))
            assert 0 == report.health.cap_reached
            return sorted(samples, key=lambda sample: sample.index)

    samples = asyncio.run(story())
    assert [number * 0.01 for number in range(10)] == [sample.due_at for sample in samples]
    assert all(sample.due_at <= sample.sent_at for sample in samples)
    assert all(End.COMPLETE is sample.end for sample in samples)
    assert min(sample.ended_at for sample in samples) > max(sample.due_at for sample in samples)


def test_the_cap_holds_back_and_counts() -> None:
    """Two at once; each that had to wait is counted, and is sent when there is room."""

    async def story() -> tuple[list[Sample], int, int]:
        async with ScriptedUpstream(Script(headers_s=0.05)) as upstream:
            samples, report = await carry_out(requests(6), Target(upstream.base_url, "m", max_in_flight=2))
            return samples, report.health.cap_reached, upstream.connections_opened

    samples, cap_reached, connections = asyncio.run(story())
    assert (6, 4, 2) == (len(samples), cap_reached, connections)
    assert all(0.0 == sample.due_at for sample in samples)
    assert max(sample.sent_at for sample in samples) >= 0.1


def test_a_burst_does_not_keep_answers_waiting() -> None:
    """More than one round can begin are sent in several."""

    async def story() -> int:
        async with ScriptedUpstream() as upstream:
            samples, _ = await carry_out(requests(200), Target(upstream.base_url, "m", stream=False))
            return sum(sample.end is End.COMPLETE for sample in samples)

    assert 200 == asyncio.run(story())


def test_a_closed_loop_keeps_its_places_filled() -> None:
    """Three at once, and due is when a place is free; nothing is begun after its time."""

    async def story() -> tuple[list[Sample], int]:
        async with ScriptedUpstream(Script(headers_s=0.02)) as upstream:
            share = Share(requests(1_000), (Stage("all", 0.0, 0.2, concurrency=3),), length_s=0.2, places={0: 3})
            samples, _ = await carry_out(share, Target(upstream.base_url, "m"))
            return samples, upstream.connections_opened

    samples, connections = asyncio.run(story())
    assert 3 == connections
    assert 6 <= len(samples) <= 30
    assert all(sample.due_at <= sample.sent_at < 0.25 for sample in samples)


def test_the_stages_of_a_closed_loop_have_their_own_places() -> None:
    """What a stage had no time for is left out, and the next one begins at its time."""

    async def story() -> list[Sample]:
        async with ScriptedUpstream(Script(headers_s=0.02)) as upstream:
            first, later = requests(500), [PlannedRequest(500 + number, 0.0, 1, WORDS.name, number, 8) for number in range(6)]
            stages = (Stage("one", 0.0, 0.1, concurrency=1), Stage("six", 0.15, 0.2, concurrency=6))
            share = Share([*first, *later], stages, length_s=0.35, places={0: 1, 1: 6})
            samples, _ = await carry_out(share, Target(upstream.base_url, "m"))
            return samples

    samples = asyncio.run(story())
    of_first = [sample for sample in samples if sample.index < 500]
    of_later = [sample for sample in samples if sample.index >= 500]
    assert 2 <= len(of_first) <= 6
    assert 6 == len(of_later)
    assert all(0.15 <= sample.sent_at <= 0.2 for sample in of_later)


def test_an_origin_to_come_is_waited_for() -> None:
    """Of a closed loop too."""

    async def story() -> float:
        async with ScriptedUpstream() as upstream:
            target = Target(upstream.base_url, "m")
            share = Share(requests(1), (Stage("all", 0.0, 1.0, concurrency=1),), length_s=1.0, places={0: 1})
            samples: list[Sample] = []
            pool = pool_for(target)
            dispatcher = Dispatcher(share, target, {WORDS.name: WORDS}, client=pool, on_sample=samples.append)
            await dispatcher.run(time.monotonic() + 0.05)
            await pool.aclose()
            return samples[0].sent_at

    assert 0.0 <= asyncio.run(story()) < 0.05


def test_stopping_ends_what_is_under_way() -> None:
    """With a sample each, and none for what was not begun."""

    async def story() -> list[Sample]:
        async with ScriptedUpstream(Script(headers_s=30.0)) as upstream:
            target = Target(upstream.base_url, "m")
            share = Share(requests(100, every_s=0.01), (), length_s=10.0, places=None)
            samples: list[Sample] = []
            pool = pool_for(target)
            dispatcher = Dispatcher(share, target, {WORDS.name: WORDS}, client=pool, on_sample=samples.append)
            running = asyncio.ensure_future(dispatcher.run(time.monotonic()))
            await upstream.wait_for(lambda: len(upstream.requests) >= 5, 5.0)
            assert dispatcher.in_flight >= 5
            dispatcher.stop()
            await asyncio.wait_for(running, 1.0)
            await pool.aclose()
            return samples

    samples = asyncio.run(story())
    assert 5 <= len(samples) < 100
    assert {End.NOT_SENT} == {sample.end for sample in samples}


def test_the_loops_lag_is_told() -> None:
    """A loop that is held for a tenth of a second says so."""

    async def story() -> float:
        async with ScriptedUpstream() as upstream:
            target = Target(upstream.base_url, "m")

            async def hold() -> None:
                await asyncio.sleep(0.03)
                time.sleep(0.1)  # noqa: ASYNC251  the fault that is to be seen

            holding = asyncio.ensure_future(hold())
            _, report = await carry_out(requests(2, every_s=0.2), target)
            await holding
            return report.health.loop_lag_max_s

    assert 0.08 < asyncio.run(story()) < 1.0


def answer_with_gaps(gaps_s: list[float], *, tokens: int | None) -> Answer:
    answer = Answer((), asked_stream=True)
    at = 0.0
    for gap_s in [0.0, *gaps_s]:
        at += gap_s
        answer.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', at)
    answer.completion_tokens = tokens
    return answer


@pytest.mark.parametrize("most", [1, 2, 1_000])
def test_gaps_go_into_the_histograms_bit_by_bit(most: int) -> None:
    """Whatever the size of the bits; per token only where tokens were reported, and an answer without gaps is none."""
    book = GapBook()
    assert book.add(0, answer_with_gaps([0.1, 0.2, 0.3], tokens=8))
    assert not book.add(1, answer_with_gaps([0.4], tokens=None))
    assert not book.add(1, answer_with_gaps([], tokens=5))
    while book.drain(most):
        pass
    chunks, tokens = book.chunk_gaps(), book.token_gaps()
    assert {0: 3, 1: 1} == {stage: buckets.total for stage, buckets in chunks.items()}
    assert {0: 3} == {stage: buckets.total for stage, buckets in tokens.items()}
    assert chunks[0].sum == pytest.approx(0.6)
    assert tokens[0].sum == pytest.approx(0.3)
