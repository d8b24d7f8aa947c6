"""What streams hold while they grow, what their clients see when a limit has nothing left, and what is charged."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.scenarios.extension_stories import EXTENSION_STORIES
from tests.scenarios.live_driver import LiveRun

from tidegate.domain.limits import LimitSubject
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.units import KeyId, ModelName, TenantId, UserId
from tidegate.domain.usage import Evidence, Usage
from tidegate.flow.actions import CancelAttempt, EndStream, Finish, HoldCost, TruncateStream
from tidegate.simulator.driver import Simulation
from tidegate.simulator.scenario import Scenario

SAME_REST = (b"x" * 400, b'"finish_reason":null')


SUBJECT = LimitSubject(KeyId("k"), TenantId("t"), UserId("u"), model=ModelName("m"), route="m")


class _Watched(Simulation):
    """Looks every millisecond how many tokens are held; `held` are the amounts, one after the other."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.held: list[int] = []
        for tick in range(1, 20_000):
            self.at(tick / 1000, self._look)
        self.run()

    def _look(self) -> None:
        amount = self.policies.limits.statistics(now=self.now).held_tokens
        if amount and self.held[-1:] != [amount]:
            self.held.append(amount)


def _used(simulation: Simulation) -> int:
    """Give what the one key has used of its limit."""
    limits = simulation.scenario.principals["key"].limits
    state = simulation.policies.limits.state(SUBJECT, limits, now=simulation.now).tokens
    assert state is not None
    return state.ceiling - state.remaining


def _record(simulation: Simulation, request: int = 0) -> RequestRecord:
    return next(entry.action.record for entry in simulation.trace if entry.request == request and isinstance(entry.action, Finish))


def test_a_truncated_stream_is_charged_for_what_flowed() -> None:
    """Sixty tokens are held, then 134, then the 66 that are left; what flowed beyond them is carried."""
    simulation = _Watched(EXTENSION_STORIES["a stream that is extended twice and then has to end"].scenario)
    assert [60, 134, 200] == simulation.held
    record = _record(simulation)
    assert (Outcome.TRUNCATED, "length", Evidence.COUNTED) == (record.outcome, record.finish_reason, record.evidence)
    assert Usage(prompt_tokens=20, completion_tokens=200) == record.usage
    assert record.cause == "the limit key-tokens had 0 of 84 more tokens for a stream"
    assert _used(simulation) == 200  # of 220: the rest waits as debt


def test_what_a_stream_holds_and_does_not_use_comes_back() -> None:
    """The window shows what flowed, not what was held for it."""
    simulation = Simulation(EXTENSION_STORIES["a stream longer than was foreseen"].scenario)
    simulation.run()
    assert Usage(prompt_tokens=12, completion_tokens=8) == _record(simulation).usage
    assert _used(simulation) == 20


@pytest.mark.parametrize("name", ["a stream that stays below its cap", "a stream whose answer is complete when its tokens are used up"])
def test_a_stream_ends_by_itself_where_it_may(name: str) -> None:
    """The upstream says that it is done."""
    kinds = [type(entry.action) for entry in Simulation(EXTENSION_STORIES[name].scenario).run()]
    assert EndStream in kinds
    assert TruncateStream not in kinds


def test_nothing_beyond_the_clients_cap_is_held() -> None:
    """A cap of a hundred: forty are foreseen, then the other sixty are held, and no more, though the upstream says more."""
    assert [60, 120] == _Watched(EXTENSION_STORIES["a stream that stays below its cap"].scenario).held


def test_a_reservation_shrinks_and_grows_with_its_attempts() -> None:
    """Each attempt holds what it may use in place of what the one before it held: as asked, shorter, and as asked elsewhere."""
    scenario = EXTENSION_STORIES["a reservation that follows a ladder"].scenario
    assert [120, 90, 120] == _Watched(replace(scenario, forecast=None)).held


def test_a_kept_call_is_cancelled_and_not_truncated() -> None:
    """There is nobody to be told that the answer ends."""
    trace = Simulation(EXTENSION_STORIES["a kept call whose client left, and whose tokens run out"].scenario).run()
    assert [CancelAttempt, Finish] == [type(entry.action) for entry in trace][-2:]
    assert TruncateStream not in {type(entry.action) for entry in trace}


def test_a_budget_says_that_it_is_one() -> None:
    """The client can tell a limit on tokens, which comes back in a minute, from money."""
    trace = Simulation(EXTENSION_STORIES["a budget that ends a stream"].scenario).run()
    [end] = [entry.action for entry in trace if isinstance(entry.action, TruncateStream)]
    assert ("budget", "acme-budget") == (end.reason, end.rule)


def test_a_target_that_is_passed_over_refuses_nobody() -> None:
    """What another target could do counts as no refusal; where none can, the cheapest says what is lacking, and it counts once."""
    for name, denied, said in (
        ("a first target that costs more than is left, and a standby that does not", 0, None),
        ("targets that all cost more than is left", 1, "The request may cost 0.0002 and the budget"),
    ):
        simulation = Simulation(EXTENSION_STORIES[name].scenario)
        simulation.run()
        rules = simulation.policies.limits.statistics(now=simulation.now).rules
        assert {"acme-budget": denied} == {rule.rule: rule.denied for rule in rules if rule.rule == "acme-budget"}
        cause = _record(simulation).cause
        assert (said is None) == (cause is None)
        assert cause is None or said is None or cause.startswith(said)


def test_what_is_held_and_charged_is_of_the_target_that_answers() -> None:
    """Forty tokens at one micro each are held of the budget, and what came is charged at that price."""
    simulation = Simulation(EXTENSION_STORIES["a first target that costs more than is left, and a standby that does not"].scenario)
    held = [entry.action.cost_micro for entry in simulation.run() if isinstance(entry.action, HoldCost)]
    assert [40] == held
    record = _record(simulation)
    assert (record.usage.completion_tokens, "standby") == (record.cost_micro, record.upstream)


def test_the_client_sees_a_whole_stream() -> None:
    """What came is relayed untouched; then the choice is finished, and the stream is done."""
    run = LiveRun(EXTENSION_STORIES["a stream that cannot be extended at all"].scenario)
    run.run()
    exchange = run.exchanges[0]
    *events, end, done, rest = exchange.body.split(b"\n\n")
    assert [True] == [all(part in event for part in SAME_REST) for event in events]
    assert b'"finish_reason":"length"' in end
    assert b'"tidegate":{"reason":"token_limit","rule":"key-tokens"}' in end
    assert (b"data: [DONE]", b"") == (done, rest)
    assert exchange.finished
    assert exchange.status == 200
