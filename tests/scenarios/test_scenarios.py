"""Every story, on both drivers: the outcomes are right, and the two decide the same things at the same times."""

from __future__ import annotations

import msgspec
import pytest
from tests.scenarios.extension_stories import EXTENSION_STORIES
from tests.scenarios.limit_stories import LIMIT_STORIES
from tests.scenarios.live_driver import FakeExchange, LiveRun
from tests.scenarios.resilience_stories import RESILIENCE_STORIES
from tests.scenarios.stories import STORIES, Story

from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.units import HeaderLines, Headers
from tidegate.flow.actions import AwaitLease, Finish
from tidegate.simulator.driver import Simulation, TracedAction

ALL_STORIES = STORIES | LIMIT_STORIES | RESILIENCE_STORIES | EXTENSION_STORIES


OF_THE_EDGE = ("trace_id", "span_id", "parent_span_id", "sampled", "business_context")
"""What a record has from the request's headers, or was drawn for it: no flow decides by it, and the simulator has no headers."""


def _records(trace: list[TracedAction], requests: int) -> tuple[RequestRecord, ...]:
    ends = {entry.request: entry.action.record for entry in trace if isinstance(entry.action, Finish)}
    return tuple(ends[index] for index in range(requests))


def comparable(trace: list[TracedAction]) -> dict[int, list[tuple[float, object]]]:
    """Group by request (requests do not order each other), and forget rounding of the clocks."""
    grouped: dict[int, list[tuple[float, object]]] = {}
    for entry in trace:
        grouped.setdefault(entry.request, []).append((round(entry.at_s, 6), _rounded(entry.action)))
    return grouped


def _rounded(action: object) -> object:
    if isinstance(action, AwaitLease):
        return AwaitLease(round(action.deadline_s, 6))
    if not isinstance(action, Finish):
        return action
    plain = msgspec.to_builtins(action.record)
    for name in OF_THE_EDGE:
        plain.pop(name, None)
    return _round_all(plain)


def _round_all(value: object) -> object:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {key: _round_all(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_round_all(inner) for inner in value]
        case _:
            return value


@pytest.mark.parametrize("story", ALL_STORIES.values(), ids=ALL_STORIES.keys())
def test_both_drivers_tell_the_same_story(story: Story) -> None:
    """The simulator runs the production flows: equal actions at equal times, and nothing left outstanding."""
    simulation = Simulation(story.scenario)
    simulated = simulation.run()
    live = LiveRun(story.scenario)
    lived = live.run()
    records = _records(simulated, len(story.scenario.requests))
    assert story.outcomes == tuple(record.outcome for record in records)
    assert story.steps in (None, tuple(tuple(attempt.step for attempt in record.attempts) for record in records))
    assert story.labels in (None, tuple(record.degraded for record in records))
    assert story.results in (None, tuple(tuple(attempt.result for attempt in record.attempts) for record in records))
    assert comparable(simulated) == comparable(lived)
    for policies in (simulation.policies, live.policies):
        assert policies.limits.statistics(now=1e6).outstanding == 0
        assert policies.limits.statistics(now=1e6).held_tokens == 0
        assert all(status.in_flight == 0 for status in policies.fleet.statistics(now=1e6))


@pytest.mark.parametrize("story", ALL_STORIES.values(), ids=ALL_STORIES.keys())
def test_every_client_gets_one_well_formed_response(story: Story) -> None:
    """Unless it left, a client sees exactly one complete response, and its record is written once."""
    run = LiveRun(story.scenario)
    run.run()
    assert len(run.records) == len(story.scenario.requests)
    for record in run.records:
        exchange = run.exchanges[int(record.request_id[1:])]
        if record.outcome is not Outcome.CLIENT_CANCELLED:
            assert exchange.finished
            assert exchange.status == record.status
            assert (b"x-request-id", record.request_id.encode()) in exchange.headers


def test_nothing_is_charged_when_no_attempt_ran_at_the_end() -> None:
    """A client that leaves between two failed attempts has used nothing."""
    run = LiveRun(STORIES["a client that leaves between two attempts"].scenario)
    run.run()
    assert run.records[0].usage.total_tokens == 0


class _BrokenExchange(FakeExchange):
    """A client connection on which every attempt to answer fails."""

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        del status, headers, body, lines
        raise AssertionError("respond")

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        del status, headers, lines
        raise AssertionError("start")


@pytest.mark.parametrize("name", ["a whole answer", "a stream", "a wrong key", "the list of models", "both upstreams dead"])
def test_a_fault_in_the_last_step_loses_neither_record_nor_permit(name: str) -> None:
    """The client's connection is dropped, and all is accounted for: no request stays open, none goes unrecorded."""
    run = LiveRun(STORIES[name].scenario, exchange=_BrokenExchange)
    run.run()
    assert [Outcome.FAILED_INTERNAL] == [record.outcome for record in run.records]
    assert run.exchanges[0].finished
    statistics = run.policies.limits.statistics(now=1e6)
    assert (0, 0) == (statistics.outstanding, statistics.held_tokens)
    assert all(status.in_flight == 0 for status in run.policies.fleet.statistics(now=1e6))
