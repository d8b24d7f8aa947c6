"""Edges of the flow that no story needs."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.scenarios.test_faults_of_policies import Fault, FaultyLimiter

from tidegate.domain.limits import Resource
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import FailureScope, Replica, Route, Target, UpstreamFailure
from tidegate.errors import Forbidden, InternalError, InvalidJson, RateLimited, TidegateError, Unauthenticated
from tidegate.flow.actions import Answer, Finish, Relay, SendError
from tidegate.flow.call_flow import CallFlow
from tidegate.flow.events import AttemptCompleted, AttemptFailed, Authenticated, BodyReceived, BodyRefused, DriverFailed, OutputStarted
from tidegate.flow.facts import Phase, Policies, RequestFacts
from tidegate.flow.faults import answer_too_large, not_a_stream, stream_never_began, unavailable
from tidegate.flow.lease_waits import LeaseWaits
from tidegate.flow.outcomes import cause_of, outcome_of_refusal
from tidegate.flow.refusals import limit_refusal, model_unknown, no_replica
from tidegate.flow.request_flow import RequestFlow
from tidegate.flow.succession import Succession
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.ladder import Rung
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.router import Plan
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape
from tidegate.ports import Denied

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
PRINCIPAL = Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=Limits(tokens_per_minute=10_000))


def _policies(stored: bytes | None = None) -> Policies:
    return Policies(
        limits=Limiter(LocalCounters()),
        routes=RouteTable([Route("m", (Target(UpstreamName("a")),))], ["m"]),
        fleet=Fleet([Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm")]),
        retry=RetryPolicy(),
        rng=Random(1),
        shape=shape,
        look_up=lambda _: stored,
    )


def _flow(policies: Policies) -> RequestFlow:
    return RequestFlow(RequestFacts("r1", Operation.CHAT, Secret("s"), 0.0), policies)


def test_a_stored_answer_is_served_and_costs_nothing() -> None:
    """A cache hit gives its permit back."""
    policies = _policies(stored=b"{}")
    flow = _flow(policies)
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    answer, finish = flow.receive(BodyReceived(CHAT), now=0.0)
    assert answer == Answer(b"{}")
    assert isinstance(finish, Finish)
    assert finish.record.outcome is Outcome.SERVED_FROM_CACHE
    assert policies.limits.statistics(now=0.0).outstanding == 0


def test_a_fault_of_the_driver_ends_the_request_with_a_plain_500() -> None:
    """The client learns that it was us, and nothing else."""
    flow = _flow(_policies())
    flow.begin(now=0.0)
    send, finish = flow.receive(DriverFailed(), now=0.0)
    assert isinstance(send, SendError)
    assert isinstance(send.error, InternalError)
    assert isinstance(finish, Finish)
    assert finish.record.outcome is Outcome.FAILED_INTERNAL


def test_a_flow_that_cannot_end_is_abandoned_with_what_is_certain() -> None:
    """Its record has who and what as far as it is known, its permit goes back once, and nothing follows."""
    policies = _policies()
    early = _flow(policies)
    early.begin(now=1.0)
    early.abandon(now=3.0)
    assert early.record is not None
    assert (Outcome.FAILED_INTERNAL, "", "", 2.0) == (
        early.record.outcome,
        early.record.key_id,
        early.record.model,
        early.record.duration_s,
    )
    flow = _flow(policies)
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    flow.receive(BodyReceived(CHAT), now=0.0)
    for _ in range(2):
        flow.abandon(now=1.0)
    assert flow.record is not None
    assert (Outcome.FAILED_INTERNAL, "k", "m") == (flow.record.outcome, flow.record.key_id, flow.record.model)
    assert policies.limits.statistics(now=1.0).outstanding == 0
    assert flow.receive(DriverFailed(), now=1.0) == []


def test_a_permit_that_cannot_be_settled_is_cancelled() -> None:
    """Once: the request then ends as any other after a fault of ours."""
    limits = FaultyLimiter(cancels=True)
    flow = _flow(msgspec.structs.replace(_policies(), limits=limits))
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    flow.receive(BodyReceived(CHAT), now=0.0)
    with pytest.raises(Fault):
        flow.receive(AttemptCompleted(1, None, "stop"), now=1.0)
    assert isinstance(flow.receive(DriverFailed(), now=1.0)[-1], Finish)
    assert (["settle", "cancel"], 0) == (limits.permits[0].ends, limits.outstanding)


def test_a_body_is_refused_once_and_only_while_it_is_awaited() -> None:
    """What the driver says too early or too late changes nothing."""
    flow, refused = _flow(_policies()), BodyRefused(InvalidJson("no"))
    flow.begin(now=0.0)
    assert flow.receive(refused, now=0.0) == []
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    send, finish = flow.receive(refused, now=0.0)
    assert isinstance(send, SendError)
    assert send.error == refused.error
    assert isinstance(finish, Finish)
    assert finish.record.outcome is Outcome.REJECTED_INVALID
    assert flow.receive(refused, now=0.0) == []


def test_errors_are_values() -> None:
    """Two that say the same are one in a set."""
    assert {InvalidJson("no")} == {InvalidJson("no"), InvalidJson("no")}
    assert InvalidJson("no") != InvalidJson("yes")


def test_an_upstream_without_replicas_is_named_itself() -> None:
    """Where no replica can be given a reason, the upstream is."""
    fleet, route = _policies().fleet, Route("m", (Target(UpstreamName("nowhere")),))
    failure = unavailable(fleet, route, ModelName("m"), now=0.0)
    assert "nowhere: " in failure.message


def test_flows_show_where_they_stand() -> None:
    """A `repr` is for the on-call engineer."""
    policies = _policies()
    assert repr(_flow(policies)) == "RequestFlow(r1, chat, waits for authentication)"
    request = ParsedRequest(Operation.CHAT, ModelName("m"), CHAT)
    call = CallFlow(request, Plan(policies.routes.routes[0]), policies)
    assert repr(call) == "CallFlow(waiting, attempt 0)"
    assert repr(LeaseWaits()) == "LeaseWaits(0, 0.5 s left)"
    assert call.next_timer() is None
    assert call.handle_timer(now=0.0) == []
    assert call.abandon(now=0.0) == []
    assert call.phase is Phase.OVER
    assert call.handle_timer(now=0.0) == []
    choice = policies.fleet.choose(policies.routes.routes[0], ModelName("m"), (), now=0.0)
    assert choice is not None
    assert repr(Succession(policies, request, policies.routes.routes[0], choice)) == "Succession(0 exhausted, next rungs: none)"
    assert call.next_timer() is None


def test_late_notes_of_an_earlier_attempt_move_no_clock() -> None:
    """Only the running attempt's connection and answer count."""
    policies = _policies()
    call = CallFlow(ParsedRequest(Operation.CHAT, ModelName("m"), CHAT), Plan(policies.routes.routes[0]), policies)
    call.begin(now=0.0)
    connect_deadline = call.next_timer()
    call.note_connected(7, now=1.0)
    call.note_response(7, 200, now=1.0)
    assert connect_deadline == call.next_timer() == 5.0
    call.note_connected(1, now=1.0)
    assert call.next_timer() == 600.0
    assert call.receive(OutputStarted(7), now=1.0) == []
    assert repr(policies.fleet) == "Fleet(a/0: 1)"


def test_an_attempt_remembers_what_its_upstream_calls_it() -> None:
    """Whoever asks the provider about a call needs the provider's name for it."""
    policies = _policies()
    request = ParsedRequest(Operation.CHAT, ModelName("m"), CHAT)
    call = CallFlow(request, Plan(policies.routes.routes[0]), policies)
    call.begin(now=0.0)
    call.note_response(1, 200, "gen-7", now=1.0)
    call.receive(AttemptCompleted(1, None, "stop"), now=2.0)
    assert call.attempts[0].upstream_request_id == "gen-7"


def test_output_begins_once() -> None:
    """A driver that reports it again changes neither the time to first token nor the response."""
    policies = _policies()
    call = CallFlow(ParsedRequest(Operation.CHAT, ModelName("m"), CHAT, stream=True), Plan(policies.routes.routes[0]), policies)
    call.begin(now=0.0)
    assert call.receive(OutputStarted(1), now=1.0) == [Relay(1)]
    assert call.receive(OutputStarted(1), now=2.0) == []
    assert call.first_output_at == 1.0


def test_an_event_before_any_call_is_ignored() -> None:
    """A driver's late report of an attempt that never was changes nothing."""
    flow = _flow(_policies())
    flow.begin(now=0.0)
    assert flow.receive(OutputStarted(1), now=0.0) == []
    assert flow.handle_timer(now=0.0) == []


def test_faults_say_what_is_wrong_with_an_answer() -> None:
    """What no upstream puts into words, we do."""
    assert "16 bytes" in answer_too_large(16).message
    assert not answer_too_large(16).retryable
    assert "without a stream" in not_a_stream().message
    assert "5 bytes" in stream_never_began(5).message


def test_a_model_nobody_knows_is_answered_with_what_there_is() -> None:
    """A near name, else the list, else how to configure one."""
    assert "Did you mean 'qwen3'?" in model_unknown("qwen-3", ["qwen3", "gpt"]).message
    assert "Available: a, b" in model_unknown("zzz", ["a", "b"]).message
    assert "and more" in model_unknown("zzz", [f"m{n}" for n in range(20)]).message
    assert "tidegate.yaml" in model_unknown("zzz", []).message
    assert len(model_unknown("z" * 5000, []).message) < 300


def test_nothing_to_serve_is_told_apart_from_a_pause() -> None:
    """A pause that upstreams asked for is a 429 with its end; anything else a 503, with the end of a breaker's pause if there is one."""
    nobody = UpstreamFailure(FailureScope.MODEL, retryable=True, message="nobody")
    pause = no_replica("m", msgspec.structs.replace(nobody, retry_after_s=7.2, rate_limited=True))
    assert (429, 7.2) == (pause.status, pause.retry_after_s)
    assert "in 8 s" in pause.message
    left_alone = no_replica("m", msgspec.structs.replace(nobody, retry_after_s=0.4))
    assert (503, 0.4) == (left_alone.status, left_alone.retry_after_s)
    assert "failed a moment ago" in left_alone.message
    nothing = no_replica("m", nobody)
    assert (503, 1.0) == (nothing.status, nothing.retry_after_s)


def test_a_refused_request_is_told_when_to_come_back() -> None:
    """The wait is in the words and in the header."""
    error = limit_refusal(Denied("key-requests", Resource.REQUESTS, 5, 0, 1, 41.5))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 41.5
    assert 'The 5 requests in any 60 s of the limit "key-requests" of this key are used up.' in error.message


def test_a_late_first_output_is_told_once_to_the_fleet() -> None:
    """At three seconds, while it is awaited; when it comes it is no second one. Whole answers have no first output to be late."""
    policies = _policies()
    for stream, late in ((True, 1), (False, 0)):
        told: list[float] = []
        fleet = _Telling([Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm")], told)
        request = ParsedRequest(Operation.CHAT, ModelName("m"), CHAT, stream=stream)
        call = CallFlow(request, Plan(policies.routes.routes[0]), msgspec.structs.replace(policies, fleet=fleet))
        call.begin(now=0.0)
        call.note_connected(1, now=0.1)
        call.note_response(1, 200, now=0.2)
        for now in (2.9, 3.0, 3.1):
            assert call.handle_timer(now=now) == []
        assert late == len(told)
        if stream:
            assert call.receive(OutputStarted(1), now=8.0) == [Relay(1, None)]
            call.handle_timer(now=9.0)
        assert [3.0] * late == told


class _Telling(Fleet):
    """A fleet that notes when it is told of late output."""

    def __init__(self, replicas: list[Replica], told: list[float]) -> None:
        super().__init__(replicas)
        self._told = told

    def output_overdue(self, replica: ReplicaId, *, now: float, began_at: float) -> None:
        self._told.append(now)
        super().output_overdue(replica, now=now, began_at=began_at)


def test_an_early_commit_before_any_output_costs_nothing() -> None:
    """The head went out, the upstream then could not be reached: nobody pays for a prompt that nobody read."""
    policies = msgspec.structs.replace(_policies(), commit_after_s=1.0)
    flow = _flow(policies)
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    flow.receive(BodyReceived(CHAT[:-1] + b',"stream":true}'), now=0.0)
    assert [Relay(1, None)] == flow.handle_timer(now=1.0)
    refused = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="refused", connect=True)
    *_, finish = flow.receive(AttemptFailed(1, refused), now=3.0)
    assert isinstance(finish, Finish)
    assert (Outcome.FAILED_MID_STREAM, 0) == (finish.record.outcome, finish.record.usage.total_tokens)


def test_a_shortened_answer_of_a_fallback_model_is_still_marked() -> None:
    """Low confidence is about the model, not about the length."""
    policies = _policies()
    request = ParsedRequest(Operation.CHAT, ModelName("m"), CHAT)
    plan = Plan(policies.routes.routes[0], degraded="L1; reason=prompt_class; class=table; confidence=low")
    call = CallFlow(request, plan, policies)
    call.begin(now=0.0)
    call._rung = Rung.SHORTER
    assert call.degraded == "L1; reason=shortened; confidence=low"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Unauthenticated("No.", why="key x is revoked"), "key x is revoked"),
        (Unauthenticated("No."), "No."),
        (Forbidden("Not this."), "Not this."),
    ],
)
def test_the_cause_of_a_refusal_is_what_operators_are_told(error: TidegateError, cause: str) -> None:
    """Where that is more than what the client is told."""
    assert cause == cause_of(error, None, None)


def test_a_refusal_has_the_outcome_of_its_status() -> None:
    """Also one for a fault of our own, which no client can mend."""
    assert Outcome.FAILED_INTERNAL is outcome_of_refusal(InternalError("a fault"))
    assert Outcome.REJECTED_RATE_LIMIT is outcome_of_refusal(RateLimited("wait", retry_after_s=1.0))
