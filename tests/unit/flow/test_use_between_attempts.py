"""A call that ends between two attempts: what those before have used is paid for."""

from __future__ import annotations

from msgspec.structs import replace

from tidegate.domain.limits import CounterSpec, LimitRule, LimitSubject, Meter, Resource
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import FailureScope, Replica, Route, Target, UpstreamFailure
from tidegate.domain.usage import Evidence, Usage
from tidegate.flow.events import AttemptFailed, Authenticated, BodyReceived, ClientLeft
from tidegate.flow.facts import RequestFacts, Step
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.limiter import counter_name
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.simulator.scenario import Scenario

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":50}'
PRINCIPAL = Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=Limits(requests_per_minute=5))
SUBJECT = LimitSubject(KeyId("k"), TenantId("t"), UserId("u"))
MICRO = 10**6
PRICES = PriceBook("1", "EUR", (PriceEntry("a", "*", Price((PriceTier(2 * MICRO, 2 * MICRO),))),))
BUDGET = LimitRule("budget", Resource.COST, CounterSpec(Meter.CALENDAR, 100_000))
TOKENS = LimitRule("tokens", Resource.TOKENS, CounterSpec(Meter.SLIDING, 10_000))
BROKEN = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="cut")


def _left_after(*used: Usage | None) -> tuple[RequestRecord, dict[str, int]]:
    """The client leaves in the pause that follows these attempts; give the record, and what each limit has counted."""
    rules, counters = (BUDGET, TOKENS), LocalCounters()
    route = Route("m", (Target(UpstreamName("a")),))
    scenario = Scenario(
        (), {}, (Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm"),), (route,), limit_rules=rules, pricing=Pricing(PRICES)
    )
    policies = scenario.policies(counters=counters)
    policies = replace(policies, retry=replace(policies.retry, tries_per_replica=9))
    flow = RequestFlow(RequestFacts("r", Operation.CHAT, Secret("s"), 0.0), policies)
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    flow.receive(BodyReceived(CHAT), now=0.0)
    now = 0.0
    for attempt, usage in enumerate(used, 1):
        flow.receive(AttemptFailed(attempt, BROKEN, usage), now=now)
        if attempt < len(used):
            now = flow.next_timer() or now
            flow.handle_timer(now=now)
    assert flow.step is Step.CALL
    flow.receive(ClientLeft(), now=now)
    assert flow.record is not None
    own = policies.limits.state(replace(SUBJECT, model="m", route="m"), PRINCIPAL.limits, now=now).requests
    assert own is not None
    taken = {"requests": 5 - own.remaining}
    for rule in rules:
        counter = counters.counter(counter_name(rule, SUBJECT), rule.spec, rule.on_store_down, now=now)
        taken[rule.name] = rule.spec.ceiling - counter.available(now=now)
    return flow.record, taken


def test_what_the_last_attempt_has_used_is_charged() -> None:
    """Its upstream has reported it: the record and every limit say the same."""
    record, taken = _left_after(Usage(30, 20))
    assert (Outcome.CLIENT_CANCELLED, Usage(30, 20), Evidence.REPORTED, 100) == (
        record.outcome,
        record.usage,
        record.evidence,
        record.cost_micro,
    )
    assert taken == {"requests": 1, "tokens": 50, "budget": 100}


def test_what_an_earlier_attempt_has_cost_is_charged() -> None:
    """Also where the last one used nothing."""
    record, taken = _left_after(Usage(30, 20), None)
    assert (0, 100) == (record.usage.total_tokens, record.cost_micro)
    assert taken == {"requests": 1, "tokens": 0, "budget": 100}


def test_where_no_attempt_used_anything_all_is_given_back() -> None:
    """The request did nothing."""
    record, taken = _left_after(None, None)
    assert (0, 0) == (record.usage.total_tokens, record.cost_micro)
    assert taken == {"requests": 0, "tokens": 0, "budget": 0}
