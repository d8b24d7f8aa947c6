"""What a record is made of: every value stands in the field of its name."""

from __future__ import annotations

from random import Random

from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier, UnbilledColor
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.record import AttemptRecord, RequestRecord, ServerTimes
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target
from tidegate.domain.usage import Evidence, Usage
from tidegate.flow.events import AttemptCompleted, Authenticated, BodyReceived, OutputStarted
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.forecast import FixedForecast
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape

BODY = b'{"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]}'
FACTS = RequestFacts(
    "request", Operation.CHAT, Secret("s"), 1_000.0, trace_id="trace", client_retry=3, feature="feature", session="session", color="red",
    span_id="span", parent_span_id="parent", sampled=True, business_context="context",
)  # fmt: skip


def _record() -> RequestRecord:
    """Carry a stream through: received at 10, output at 13, over at 17 s."""
    policies = Policies(
        limits=Limiter(LocalCounters()),
        routes=RouteTable([Route("m*", (Target(UpstreamName("a"), ModelName("their-model")),))], ["m"]),
        fleet=Fleet([Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm")]),
        retry=RetryPolicy(),
        rng=Random(1),
        shape=shape,
        look_up=lambda _: None,
        forecast=FixedForecast(40, heeds_cap=False),
        pricing=Pricing(PriceBook("7", "USD", (PriceEntry("a", "*", Price((PriceTier(0, 0),), request_micro=100)),))),
        unbilled=(UnbilledColor("red", "tenant"),),
    )
    flow = RequestFlow(FACTS, policies)
    flow.begin(now=10.0)
    flow.receive(Authenticated(Principal(KeyId("key"), TenantId("tenant"), UserId("user"), "tier")), now=11.0)
    flow.receive(BodyReceived(BODY), now=12.0)
    assert flow.call is not None
    flow.call.note_connected(1, now=12.25)
    flow.call.note_response(1, 201, "theirs", now=12.5)
    flow.receive(OutputStarted(1), now=13.0)
    flow.call.progress.chunks = 5
    usage = Usage(prompt_tokens=9, completion_tokens=6)
    flow.receive(AttemptCompleted(1, usage, "length", 70, ServerTimes(0.25, 0.5, 1.0)), now=17.0)
    assert flow.record is not None
    return flow.record


def test_every_value_is_in_the_field_of_its_name() -> None:
    """Records and attempts are made by place: expected what the same makes by name."""
    record = _record()
    attempt = AttemptRecord(
        attempt=1, replica="a/0", result="ok", model="their-model", status=201, upstream_request_id="theirs",
        connect_s=0.25, first_byte_s=0.5, first_token_s=1.0, duration_s=5.0, cost_micro=100, began_s=2.0,
        queue_s=0.25, prefill_s=0.5, decode_s=1.0,
    )  # fmt: skip
    expected = RequestRecord(
        request_id="request", started_at=1_000.0, operation="chat", outcome=Outcome.TRUNCATED, status=200, duration_s=7.0, key_id="key",
        tenant="tenant", user="user", tier="tier", model="m1", route="m*", upstream="a", upstream_model="their-model", stream=True,
        ttft_s=3.0, upstream_s=5.0, usage=Usage(prompt_tokens=9, completion_tokens=6), evidence=Evidence.REPORTED,
        reserved_tokens=record.prompt_tokens_bound + 40, cost_micro=100, price_version="7", traffic_bytes=len(BODY) + 70,
        prompt_tokens_bound=record.prompt_tokens_bound, finish_reason="length", chunks=5, feature="feature", color="red", unbilled=True,
        attempts=(attempt,), trace_id="trace", client_retry=3, span_id="span", parent_span_id="parent", sampled=True,
        business_context="context",
    )  # fmt: skip
    assert expected == record
