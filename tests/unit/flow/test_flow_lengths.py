"""What the forecast is asked and told: how long answers may become, and how long they became."""

from __future__ import annotations

from random import Random

from tidegate.domain.principal import Limits, Principal
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import FailureScope, Replica, Route, Target, UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.flow.actions import Finish, TruncateStream
from tidegate.flow.events import AttemptCompleted, AttemptFailed, Authenticated, BodyReceived, Event, OutputReached, OutputStarted
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.metering.forecast import Forecast
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape
from tidegate.ports import ForecastStatistics

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
STREAM = CHAT[:-1] + b',"stream":true}'
TWO = CHAT[:-1] + b',"n":2}'
CAPPED = CHAT[:-1] + b',"max_tokens":70}'
EMBEDDING = b'{"model":"m","input":"hi"}'


class Listener(Forecast):
    """A forecast that always expects 50, and remembers what it was asked and told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, int, int | None, float]] = []
        self.told: list[tuple[str, str, str, int, int, bool, float]] = []

    def expect(self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, cap: int | None, now: float) -> int:
        self.asked.append((tenant, route, model, prompt_tokens, cap, now))
        return 50

    def observe(
        self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, completion_tokens: int, cut: bool, now: float
    ) -> None:
        self.told.append((tenant, route, model, prompt_tokens, completion_tokens, cut, now))

    def statistics(self) -> ForecastStatistics:
        return ForecastStatistics(0, len(self.told), 0)


def run(listener: Listener | None, body: bytes, *events: Event, operation: Operation = Operation.CHAT) -> RequestFlow:
    """Carry a request through its call, and the events that happen to it, one second apart."""
    policies = Policies(
        limits=Limiter(LocalCounters()),
        routes=RouteTable([Route("m*", (Target(UpstreamName("a")),))], ["m"]),
        fleet=Fleet([Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm")]),
        retry=RetryPolicy(),
        rng=Random(1),
        shape=shape,
        look_up=lambda _: None,
        forecast=listener,
    )
    flow = RequestFlow(RequestFacts("r1", operation, Secret("s"), 0.0), policies)
    flow.begin(now=0.0)
    flow.receive(Authenticated(Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=Limits(tokens_per_minute=10_000))), now=0.0)
    flow.receive(BodyReceived(body), now=0.0)
    for second, event in enumerate(events, start=1):
        flow.receive(event, now=float(second))
    return flow


def test_what_is_expected_is_held() -> None:
    """By the subject whose limits apply, the prompt's bound and the client's cap; for each choice."""
    listener = Listener()
    one, two = run(listener, CHAT), run(listener, TWO)
    for flow, choices in ((one, 1), (two, 2)):
        assert flow.request is not None
        held = flow._policies.limits.statistics(now=0.0).held_tokens
        assert flow.request.prompt_tokens_bound + 50 * choices == held
    run(listener, CAPPED)
    assert [None, None, 70] == [cap for _, _, _, _, cap, _ in listener.asked]
    assert one.request is not None
    assert listener.asked[0] == ("t", "m*", "m", one.request.prompt_tokens_bound, None, 0.0)


def test_a_reported_length_is_learned_for_each_choice() -> None:
    """By the same measure of the prompt by which it was expected."""
    listener = Listener()
    flow = run(listener, TWO, AttemptCompleted(1, Usage(prompt_tokens=9, completion_tokens=31), "stop"))
    assert flow.request is not None
    assert listener.told == [("t", "m*", "m", flow.request.prompt_tokens_bound, 16, False, 1.0)]


def test_what_nobody_reported_is_not_learned() -> None:
    """Neither an answer without usage, nor one that failed, nor an embedding."""
    listener = Listener()
    run(listener, CHAT, AttemptCompleted(1, None, "stop"))
    broken = UpstreamFailure(FailureScope.REQUEST, retryable=False, message="no")
    run(listener, CHAT, AttemptFailed(1, broken, Usage(prompt_tokens=9, completion_tokens=3)))
    run(listener, EMBEDDING, AttemptCompleted(1, Usage(prompt_tokens=9), None), operation=Operation.EMBEDDING)
    assert listener.told == []
    run(None, CHAT, AttemptCompleted(1, Usage(prompt_tokens=9, completion_tokens=3), "stop"))


def test_an_answer_that_a_limit_ended_is_told_as_that() -> None:
    """By what had flowed; where limits are full, forecasts would else learn from short answers only."""
    listener = Listener()
    flow = run(listener, STREAM, OutputStarted(1))
    assert flow.call is not None
    actions: list[object] = []
    while not actions:
        flow.call.progress.chunks = flow.call.progress.extend_at
        actions += flow.receive(OutputReached(1), now=2.0)
    assert [TruncateStream, Finish] == [type(action) for action in actions[1:]]
    assert flow.request is not None
    assert listener.told == [("t", "m*", "m", flow.request.prompt_tokens_bound, flow.call.progress.tokens, True, 2.0)]
