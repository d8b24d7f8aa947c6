"""What requests cost: held before they run, charged for every attempt, never beyond a budget."""

from __future__ import annotations

from random import Random

from tidegate.domain.limits import CounterSpec, LimitRule, Meter, Resource, Scope, ScopeMatch
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier, TimeWindow, UnbilledColor
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import FailureScope, Replica, Route, Target, UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.flow.actions import Action, HoldCost
from tidegate.flow.charges import Charges, charges_of, is_unbilled
from tidegate.flow.events import AttemptCompleted, AttemptFailed, Authenticated, BodyReceived, TokensCounted
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape
from tidegate.ports import TokenCount
from tidegate.wire.openai import parse_request

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":10}'
PRINCIPAL = Principal(KeyId("k"), TenantId("t"), UserId("u"))
CALL_MICRO = 100
BOOK = PriceBook(
    "7",
    "USD",
    (
        PriceEntry("a", "x", Price((PriceTier(0, 1_000_000),), request_micro=CALL_MICRO, image_micro=1_000)),
        PriceEntry("b", "*", Price((PriceTier(0, 2_000_000),), windows=(TimeWindow(500_000, 60, 120),))),
    ),
)
ROUTE = Route("m", (Target(UpstreamName("a"), ModelName("x")), Target(UpstreamName("b"))))
BROKEN = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="broken", status=500)


def policies(*, budget_micro: int = 10**9, unbilled: tuple[UnbilledColor, ...] = ()) -> Policies:
    rule = LimitRule("day", Resource.COST, CounterSpec(Meter.CALENDAR, budget_micro), (ScopeMatch(Scope.TENANT),))
    return Policies(
        limits=Limiter(LocalCounters(), [rule]),
        routes=RouteTable([ROUTE], ["m"]),
        fleet=Fleet([Replica(ReplicaId(f"{name}/0"), UpstreamName(name), "vllm") for name in "ab"]),
        retry=RetryPolicy(),
        rng=Random(1),
        shape=shape,
        look_up=lambda _: None,
        pricing=Pricing(BOOK),
        unbilled=unbilled,
    )


def started(given: Policies, *, at: float = 0.0, body: bytes = CHAT) -> RequestFlow:
    flow = RequestFlow(RequestFacts("r", Operation.CHAT, Secret("s"), at), given)
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    flow.receive(BodyReceived(body), now=0.0)
    return flow


def record_of(flow: RequestFlow) -> RequestRecord:
    assert flow.record is not None
    return flow.record


def test_every_attempt_is_charged_at_the_price_of_its_upstream() -> None:
    """The first reported what it had used before it failed; the second answered, in a cheap hour."""
    flow = started(policies(), at=3600.0)
    flow.receive(AttemptFailed(1, BROKEN, Usage(3, 4)), now=0.0)
    flow.receive(AttemptCompleted(2, Usage(3, 10), "stop", 400), now=1.0)
    record = record_of(flow)
    assert [("x", Usage(3, 4), 104), ("m", Usage(), 10)] == [
        (attempt.model, attempt.usage, attempt.cost_micro) for attempt in record.attempts
    ]
    assert (114, "7", Usage(3, 10), len(CHAT) + 400) == (record.cost_micro, record.price_version, record.usage, record.traffic_bytes)


def test_an_attempt_that_produced_nothing_costs_nothing() -> None:
    """Not even the price of a call."""
    flow = started(policies())
    flow.receive(AttemptFailed(1, BROKEN, None), now=0.0)
    flow.receive(AttemptCompleted(2, Usage(), "stop", 0), now=0.0)
    assert (0, "", [0, 0]) == (
        record_of(flow).cost_micro,
        record_of(flow).price_version,
        [each.cost_micro for each in record_of(flow).attempts],
    )


def test_pictures_are_paid_for_where_they_have_a_price() -> None:
    """Each one, whatever its address; texts that only speak of them are none."""
    picture = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}'
    body = CHAT.replace(b'"hi"', b"[" + picture + b"," + picture + b',{"type":"text","text":"an \\"image_url\\""}]')
    flow = started(policies(), body=body)
    flow.receive(AttemptCompleted(1, Usage(3, 10), "stop", 400), now=1.0)
    assert 2_000 + CALL_MICRO + 10 == record_of(flow).cost_micro


def test_without_prices_attempts_stay_as_they_are() -> None:
    """And a request that came to no attempt has none."""
    attempt = AttemptRecord(1, "a/0", "ok")
    request = ParsedRequest(Operation.CHAT, ModelName("m"), CHAT)
    assert Charges(attempts=(attempt,)) == charges_of(None, request, [attempt], Usage(1, 1), at=0.0)
    assert Charges() == charges_of(Pricing(BOOK), None, [], Usage(), at=0.0)


def test_an_upstream_without_a_price_leaves_the_others_version() -> None:
    """The record names the book that any part of its cost is from."""
    attempts = [AttemptRecord(1, "a/0", "failed", model="x", usage=Usage(0, 1)), AttemptRecord(2, "c/0", "ok", model="x")]
    request = parse_request(Operation.CHAT, CHAT)
    assert isinstance(request, ParsedRequest)
    charges = charges_of(Pricing(BOOK), request, attempts, Usage(1, 1), at=0.0)
    assert (101, "7", (101, 0)) == (charges.amount_micro, charges.version, tuple(each.cost_micro for each in charges.attempts))


def test_a_budget_worth_ten_calls_lets_exactly_ten_of_two_hundred_through() -> None:
    """All at once: what is held covers what they cost, so that the budget is used up and not overspent."""
    given = policies(budget_micro=10 * (CALL_MICRO + 10))
    flows = [started(given) for _ in range(200)]
    for flow in flows:
        flow.receive(TokensCounted(TokenCount(5, "qwen", exact=True)), now=0.0)  # what did not fit by its bound is counted
    running = [flow for flow in flows if flow.call is not None]
    assert 10 == len(running)
    for flow in running:
        flow.receive(AttemptCompleted(1, Usage(5, 10), "stop", 40), now=1.0)
    records = [record_of(flow) for flow in flows]
    assert 10 * (CALL_MICRO + 10) == sum(record.cost_micro for record in records)
    assert (10, 190) == tuple(sum(record.outcome is each for record in records) for each in (Outcome.OK, Outcome.REJECTED_BUDGET))
    assert 0 == given.limits.statistics(now=1.0).outstanding


def test_what_was_held_and_not_spent_serves_the_next() -> None:
    """The budget counts what calls cost, not what they might have."""
    given = policies(budget_micro=2 * CALL_MICRO + 12)
    first = started(given)
    first.receive(AttemptCompleted(1, Usage(5, 1), "stop", 40), now=1.0)
    second = started(given)
    assert second.call is not None
    second.receive(AttemptCompleted(1, Usage(5, 10), "stop", 40), now=1.0)
    assert (CALL_MICRO + 1, CALL_MICRO + 10) == (record_of(first).cost_micro, record_of(second).cost_micro)


def test_a_grant_is_for_one_color_and_its_tenants() -> None:
    """Another tenant's traffic of that colour is billed, and so is another colour of that tenant's."""
    grants = (UnbilledColor("bench", "load-*"), UnbilledColor("drill", "ops"))
    assert is_unbilled(grants, "bench", "load-1")
    assert is_unbilled(grants, "drill", "ops")
    assert not is_unbilled(grants, "bench", "ops")
    assert not is_unbilled(grants, "Bench", "load-1")
    assert not is_unbilled((), "bench", "load-1")


def test_what_nobody_is_billed_for_holds_no_money_and_has_its_cost() -> None:
    """The budget is as before, the books hold nothing, and the record says what it came to."""
    given = policies(budget_micro=CALL_MICRO + 10, unbilled=(UnbilledColor("bench", "t"),))
    for _ in range(3):
        acted, record = answered(given, color="bench")
        assert ("bench", True, CALL_MICRO + 10, "7") == (record.color, record.unbilled, record.cost_micro, record.price_version)
        assert not any(isinstance(action, HoldCost) for action in acted)
    acted, record = answered(given)
    assert (Outcome.OK, "", False, CALL_MICRO + 10) == (record.outcome, record.color, record.unbilled, record.cost_micro)
    assert [CALL_MICRO + 10] == [action.cost_micro for action in acted if isinstance(action, HoldCost)]
    _, record = answered(given)
    assert Outcome.REJECTED_BUDGET is record.outcome, "what was billed has used the budget up"
    _, record = answered(given, color="bench")
    assert Outcome.OK is record.outcome, "what is not billed is under no budget"


def test_a_color_without_a_grant_is_only_a_mark() -> None:
    """It is held, charged and refused like any other traffic."""
    given = policies(budget_micro=CALL_MICRO + 10, unbilled=(UnbilledColor("bench", "other"),))
    acted, record = answered(given, color="bench")
    assert ("bench", False, CALL_MICRO + 10) == (record.color, record.unbilled, record.cost_micro)
    assert [CALL_MICRO + 10] == [action.cost_micro for action in acted if isinstance(action, HoldCost)]
    assert Outcome.REJECTED_BUDGET is answered(given, color="bench")[1].outcome


def answered(given: Policies, *, color: str = "") -> tuple[list[Action], RequestRecord]:
    """Run a request whose prompt is counted where that is asked for, and whose answer is ten tokens; give all actions, and the record."""
    flow = RequestFlow(RequestFacts("r", Operation.CHAT, Secret("s"), 0.0, color=color), given)
    acted = flow.begin(now=0.0)
    counted = TokensCounted(TokenCount(5, "qwen", exact=True))
    for event in (Authenticated(PRINCIPAL), BodyReceived(CHAT), counted, AttemptCompleted(1, Usage(5, 10), "stop", 40)):
        acted += flow.receive(event, now=1.0)
    return acted, record_of(flow)
