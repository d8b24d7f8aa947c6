"""What a flow makes of a report that more came than is held: nothing, where it is late, early or about nothing."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from tidegate.domain.principal import Limits, Principal
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target
from tidegate.flow.actions import CancelAttempt, Finish, TruncateStream
from tidegate.flow.events import Authenticated, BodyReceived, OutputReached, OutputStarted
from tidegate.flow.facts import RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.metering.forecast import FixedForecast
from tidegate.simulator.scenario import Scenario

STREAM = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'


def _flow(limits: Limits) -> RequestFlow:
    """A stream that runs on its first attempt."""
    scenario = Scenario(
        (),
        {},
        (Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm"),),
        (Route("m", (Target(UpstreamName("a")),)),),
        forecast=FixedForecast(40, heeds_cap=False),
    )
    flow = RequestFlow(RequestFacts("r", Operation.CHAT, Secret("s"), 0.0), replace(scenario.policies(), rng=Random(1)))
    flow.begin(now=0.0)
    flow.receive(Authenticated(Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=limits)), now=0.0)
    flow.receive(BodyReceived(STREAM), now=0.0)
    return flow


def test_a_report_before_the_first_output_changes_nothing() -> None:
    """Nothing was sent that could be ended."""
    flow = _flow(Limits(tokens_per_minute=10_000))
    assert flow.call is not None
    flow.call.progress.chunks = 10_000
    assert [] == flow.receive(OutputReached(1), now=1.0)


def test_a_report_that_is_not_true_changes_nothing() -> None:
    """Less has come than is held."""
    flow = _flow(Limits(tokens_per_minute=10_000))
    flow.receive(OutputStarted(1), now=1.0)
    assert flow.call is not None
    flow.call.progress.chunks = 39
    assert [] == flow.receive(OutputReached(1), now=1.0)
    assert flow.call.progress.extend_at == 40


def test_a_report_of_a_stream_without_limits_changes_nothing() -> None:
    """There is nothing to hold."""
    flow = _flow(Limits())
    flow.receive(OutputStarted(1), now=1.0)
    assert flow.call is not None
    flow.call.progress.chunks = 10**9
    assert [] == flow.receive(OutputReached(1), now=1.0)


def test_a_stream_is_extended_until_a_limit_has_nothing_left() -> None:
    """Each report moves the next one; the last is the end."""
    flow = _flow(Limits(tokens_per_minute=10_000))
    call = flow.call
    assert call is not None
    flow.receive(OutputStarted(1), now=1.0)
    marks = [call.progress.extend_at]
    actions: list[object] = []
    while not actions:
        call.progress.chunks = marks[-1]
        actions += flow.receive(OutputReached(1), now=1.0)
        marks.append(call.progress.extend_at)
    assert marks[:3] == [40, 104, 168]
    assert sorted(set(marks)) == marks[:-1]
    assert [CancelAttempt, TruncateStream, Finish] == [type(action) for action in actions]
    assert 9_500 < marks[-1] <= 10_000
    assert flow.receive(OutputReached(1), now=1.0) == []
