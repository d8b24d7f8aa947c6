"""What the leases of a worker do not cover is waited for once, on both drivers, and then refused."""

from __future__ import annotations

import msgspec
import pytest
from tests.scenarios.limit_stories import limit, limited
from tests.scenarios.live_driver import LiveRun
from tests.scenarios.stories import ANSWER, CHAT
from tests.scenarios.test_scenarios import comparable

from tidegate.domain.limits import CounterSpec, Resource, StoreDown
from tidegate.domain.outcome import Outcome
from tidegate.domain.request import Operation
from tidegate.flow.actions import AwaitLease, Finish, SendError
from tidegate.flow.lease_waits import LEASE_WAIT_S, MOST_LEASE_WAITS
from tidegate.policy.metering.counter import Counter, CounterStatistics
from tidegate.policy.metering.sliding_window import SlidingWindow
from tidegate.simulator.driver import Simulation, TracedAction
from tidegate.simulator.scenario import Scenario, ScriptedRequest


class LateWindow(SlidingWindow):
    """Refuses each amount until it was asked for as often as it says, as a lease does that has to be asked for first."""

    __slots__ = ("refusals",)

    def __init__(self, spec: CounterSpec, *, origin: float, refusals: int) -> None:
        super().__init__(spec, origin=origin)
        self.refusals = refusals

    def take(self, amount: int, *, now: float) -> int | None:
        if self.refusals > 0:
            self.refusals -= 1
            return None
        return super().take(amount, now=now)

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:
        del amount, now, is_patient
        return True


class LateCounters:
    """Gives counters that are late."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals
        self._counters: dict[str, Counter] = {}

    def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> Counter:
        del on_store_down
        if name not in self._counters:
            self._counters[name] = LateWindow(spec, origin=now, refusals=self._refusals)
        return self._counters[name]

    def statistics(self) -> CounterStatistics:
        return CounterStatistics(len(self._counters))


MODELS = ScriptedRequest(0.0, b"", Operation.MODELS)
ONE = ScriptedRequest(0.0, CHAT, calls=(ANSWER,))
LEAVES = ScriptedRequest(0.0, CHAT, calls=(ANSWER,), leaves_after_s=0.001)
MOST = MOST_LEASE_WAITS
TIGHT = 130
"""Tokens with which the prompt is counted before they are reserved."""


def told(scenario: Scenario, refusals: int) -> list[TracedAction]:
    """Play a scenario on both drivers and give what both decided."""
    simulation = Simulation(scenario, policies=scenario.policies(counters=LateCounters(refusals)))
    live = LiveRun(scenario, policies=scenario.policies(counters=LateCounters(refusals)))
    trace = simulation.run()
    assert comparable(trace) == comparable(live.run())
    for policies in (simulation.policies, live.policies):
        statistics = policies.limits.statistics(now=1e6)
        assert (0, 0) == (statistics.outstanding, statistics.held_tokens)
    return trace


@pytest.mark.parametrize(
    ("request_", "resource", "ceiling", "refusals", "waits", "outcome"),
    [
        (ONE, Resource.REQUESTS, 10, 1, 1, Outcome.OK),
        (ONE, Resource.REQUESTS, 10, MOST, MOST, Outcome.OK),
        (ONE, Resource.REQUESTS, 10, MOST + 1, MOST, Outcome.REJECTED_RATE_LIMIT),
        (MODELS, Resource.REQUESTS, 10, 1, 1, Outcome.OK),
        (ONE, Resource.TOKENS, 10_000, 1, 1, Outcome.OK),
        (ONE, Resource.TOKENS, 10_000, MOST + 1, MOST, Outcome.OK),  # the exact count is less, and that is there
        (ONE, Resource.TOKENS, 10_000, MOST + 2, MOST, Outcome.REJECTED_RATE_LIMIT),
        (ONE, Resource.TOKENS, TIGHT, MOST, MOST, Outcome.OK),
        (ONE, Resource.TOKENS, TIGHT, MOST + 1, MOST, Outcome.REJECTED_RATE_LIMIT),
        (LEAVES, Resource.REQUESTS, 10, 1, 1, Outcome.CLIENT_CANCELLED),
        (LEAVES, Resource.TOKENS, 10_000, 1, 1, Outcome.CLIENT_CANCELLED),
    ],
)
def test_a_request_waits_for_leases_at_each_gate(
    request_: ScriptedRequest, resource: Resource, ceiling: int, refusals: int, waits: int, outcome: Outcome
) -> None:
    """An exchange may bring what is missing; if none does, the client is told to come back in a second."""
    trace = told(limited(request_, rules=(limit(resource, ceiling),)), refusals)
    actions = [entry.action for entry in trace]
    assert waits == sum(isinstance(action, AwaitLease) for action in actions)
    assert isinstance(actions[-1], Finish)
    assert outcome is actions[-1].record.outcome
    if outcome is Outcome.REJECTED_RATE_LIMIT:
        assert [1.0] == [action.error.retry_after_s for action in actions if isinstance(action, SendError)]


def test_a_request_does_not_wait_for_a_slow_store_again() -> None:
    """One exchange that takes as long as a request may wait is the last."""
    scenario = msgspec.structs.replace(limited(ONE, rules=(limit(Resource.REQUESTS, 10),)), lease_takes_s=LEASE_WAIT_S)
    trace = told(scenario, 2)
    assert 1 == sum(isinstance(entry.action, AwaitLease) for entry in trace)
    assert isinstance(trace[-1].action, Finish)
    assert Outcome.REJECTED_RATE_LIMIT is trace[-1].action.record.outcome


@pytest.mark.parametrize(("takes_s", "waits"), [(0.06, 4), (0.0401, 5), (0.0201, 10), (0.001, MOST)])
def test_who_is_forestalled_again_and_again_waits_a_fifth_of_a_second(takes_s: float, waits: int) -> None:
    """Four times in any case, and more often while that takes less."""
    scenario = msgspec.structs.replace(limited(ONE, rules=(limit(Resource.REQUESTS, 10),)), lease_takes_s=takes_s)
    trace = told(scenario, MOST + 1)
    assert waits == sum(isinstance(entry.action, AwaitLease) for entry in trace)
    assert isinstance(trace[-1].action, Finish)
    assert Outcome.REJECTED_RATE_LIMIT is trace[-1].action.record.outcome


def test_the_gate_and_the_tokens_may_both_be_waited_for() -> None:
    """Each of the two asks the store once."""
    rules = (limit(Resource.REQUESTS, 10), msgspec.structs.replace(limit(Resource.TOKENS, 10_000), name="tokens"))
    trace = told(limited(ONE, rules=rules), 1)
    assert 2 == sum(isinstance(entry.action, AwaitLease) for entry in trace)


def test_all_waits_of_a_request_share_half_a_second() -> None:
    """A slow store is waited for once and a little more, at the gate and for the tokens together."""
    rules = (limit(Resource.REQUESTS, 10), msgspec.structs.replace(limit(Resource.TOKENS, 10_000), name="tokens"))
    scenario = msgspec.structs.replace(limited(ONE, rules=rules), lease_takes_s=0.2)
    trace = told(scenario, 2)
    waits = [entry.action.deadline_s for entry in trace if isinstance(entry.action, AwaitLease)]
    assert [0.5, 0.3, 0.1] == [round(deadline_s, 6) for deadline_s in waits]
    begun = [entry.at_s for entry in trace if isinstance(entry.action, AwaitLease)]
    assert 0.4 == round(begun[-1], 6)


class _BrokenRun(LiveRun):
    """A live run whose store of leases fails."""

    async def replenished(self, *, deadline_s: float) -> None:
        raise AssertionError(deadline_s)


def test_a_fault_of_the_lease_keeper_ends_the_request_and_loses_nothing() -> None:
    """A 500, one record, and no permit left."""
    scenario = limited(ONE, rules=(limit(Resource.TOKENS, 10_000),))
    run = _BrokenRun(scenario, policies=scenario.policies(counters=LateCounters(1)))
    run.run()
    assert [Outcome.FAILED_INTERNAL] == [record.outcome for record in run.records]
    assert 0 == run.policies.limits.statistics(now=1e6).outstanding
