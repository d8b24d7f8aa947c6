"""The clocks of one attempt, asked directly: what runs when, and for when an alarm is asked."""

from __future__ import annotations

from random import Random

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName, ReplicaId, UpstreamName
from tidegate.domain.upstream import Replica, Route, Target, Timeouts
from tidegate.flow.actions import CancelAttempt
from tidegate.flow.call_flow import CallFlow
from tidegate.flow.events import OutputStarted
from tidegate.flow.facts import Policies
from tidegate.policy.caching.off import look_up
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.router import Plan
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def _stream(clocks: Timeouts) -> CallFlow:
    route = Route("m", (Target(UpstreamName("a")),))
    policies = Policies(
        limits=Limiter(LocalCounters()),
        routes=RouteTable([route], ["m"]),
        fleet=Fleet([Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm", clocks)]),
        retry=RetryPolicy(),
        rng=Random(1),
        shape=shape,
        look_up=look_up,
    )
    call = CallFlow(ParsedRequest(Operation.CHAT, ModelName("m"), BODY, stream=True), Plan(route), policies)
    call.begin(now=0.0)
    return call


def test_a_stall_begins_with_the_first_piece_of_the_body() -> None:
    """A head that came at once is no piece: until the first of them only the first token is waited for."""
    call = _stream(Timeouts(stall_s=2.0))
    call.note_connected(1, now=0.1)
    call.note_response(1, 200, now=0.2)
    assert call.handle_timer(now=9.0) == []
    call.progress.at = 9.5
    assert call.handle_timer(now=11.4) == []
    assert CancelAttempt(1) in call.handle_timer(now=11.5)
    assert call.attempts[0].result == "timeout_stall"


def test_silence_that_the_client_caused_counts_from_its_end() -> None:
    """Whoever does not read cannot tell that nothing came; before the first piece there is no gap to forgive."""
    call = _stream(Timeouts(stall_s=2.0, first_token_s=20.0))
    call.note_connected(1, now=0.1)
    call.note_response(1, 200, now=0.2)
    call.forgive_silence(now=3.0)
    assert call.handle_timer(now=6.0) == []
    call.progress.at = 7.0
    call.receive(OutputStarted(1), now=7.0)
    call.forgive_silence(now=8.5)
    assert call.handle_timer(now=10.4) == []
    call.handle_timer(now=10.5)
    assert call.attempts[0].result == "timeout_stall"


def test_with_the_usual_clocks_one_alarm_serves_a_quick_stream() -> None:
    """Nothing that is noted on its way asks for an earlier one than its start did."""
    call = _stream(Timeouts())
    asked = [call.next_timer()]
    call.note_connected(1, now=0.1)
    asked.append(call.next_timer())
    call.note_response(1, 200, now=0.2)
    asked.append(call.next_timer())
    call.progress.at = 0.3
    call.receive(OutputStarted(1), now=0.3)
    asked.append(call.next_timer())
    assert asked == [3.0, 3.0, 3.0, 30.3]


def test_an_early_alarm_asks_for_a_later_one() -> None:
    """A driver that looks when there is nothing to do never looks twice at one instant."""
    call = _stream(Timeouts(stall_s=0.5))
    now = 0.0
    for _ in range(8):
        wake_at = call.next_timer()
        assert wake_at is not None
        assert wake_at > now
        now = wake_at
        assert call.handle_timer(now=now) == []
