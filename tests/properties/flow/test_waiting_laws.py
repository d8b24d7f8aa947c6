"""Laws of requests that wait for leases: whatever happens meanwhile, nothing is lost, and nobody waits for ever."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.flow.test_flow_laws import CLOCKS, EVENTS
from tests.scenarios.limit_stories import limit
from tests.scenarios.test_lease_stories import LateCounters

from tidegate.domain.limits import Resource
from tidegate.domain.request import Operation
from tidegate.domain.units import ReplicaId, Secret, UpstreamName
from tidegate.domain.upstream import Replica, Route, Target
from tidegate.flow.actions import AwaitLease, Finish
from tidegate.flow.events import DriverFailed, Event, LeaseAnswered
from tidegate.flow.facts import RequestFacts, Step
from tidegate.flow.lease_waits import LEASE_WAIT_S, MOST_LEASE_WAITS
from tidegate.flow.request_flow import RequestFlow
from tidegate.simulator.scenario import Scenario

RULES = (limit(Resource.REQUESTS, 10), msgspec.structs.replace(limit(Resource.TOKENS, 8000), name="tokens"))


@given(
    st.lists(st.tuples(st.sampled_from((*EVENTS, *[LeaseAnswered()] * 6)), st.integers(0, 64)), max_size=25),
    st.integers(1, 4),
    st.sampled_from([Operation.CHAT, Operation.MODELS]),
)
def test_whoever_waits_for_a_lease_may_be_told_anything(moves: list[tuple[Event, int]], refusals: int, operation: Operation) -> None:
    """Law: a flow ends at most once, waits at most so often at each of two gates, and leaves nothing outstanding when it is told to end."""
    replicas = (Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm", CLOCKS),)
    world = Scenario((), {}, replicas, (Route("m", (Target(UpstreamName("a")),)),), limit_rules=RULES)
    policies = world.policies(counters=LateCounters(refusals))
    flow = RequestFlow(RequestFacts("r", operation, Secret("s"), 0.0), policies)
    now = 0.0
    actions = flow.begin(now=now)
    for event, ticks in moves:
        now += ticks / 64
        waited = flow.step is Step.LEASE
        told = flow.receive(event, now=now)
        assert waited or not isinstance(event, LeaseAnswered) or told == []
        actions += told
    actions += flow.receive(DriverFailed(), now=now)
    assert 1 == sum(isinstance(action, Finish) for action in actions)
    waits = [action.deadline_s for action in actions if isinstance(action, AwaitLease)]
    assert 2 * MOST_LEASE_WAITS >= len(waits)
    assert all(0 < deadline_s <= LEASE_WAIT_S for deadline_s in waits)
    assert waits == sorted(waits, reverse=True)
    statistics = policies.limits.statistics(now=now)
    assert (0, 0) == (statistics.outstanding, statistics.held_tokens)
