"""The plan of a request: rules, promise and budget put together, with the route's own targets behind."""

from __future__ import annotations

import pytest

from tidegate.domain.features import PromptFeatures
from tidegate.domain.principal import Principal
from tidegate.domain.request import BodyChanges, Operation, ParsedRequest
from tidegate.domain.units import KeyId, ModelName, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Route, Target
from tidegate.policy.routing.budget import Budget
from tidegate.policy.routing.router import Plan, Router, RouteSettings
from tidegate.policy.routing.rules import Conditions, Rule
from tidegate.policy.routing.sla import Candidate

A, B, C = (Target(UpstreamName(name)) for name in "abc")
SMALL = Target(UpstreamName("c"), ModelName("q4"))
ROUTE = Route("m", (A, B))
OTHER = Route("other", (B,))
CODE = PromptFeatures(900, frozenset({"code"}))
BY_PROMISE = RouteSettings("m", (Candidate(A, 0.1, 2.0), Candidate(B, 1.0, 1.0)))
BUDGET = RouteSettings("m", None, Budget(1_000, 100, SMALL))


class Nothing:
    """A fleet in which nothing was observed, or `a` is as fast as said."""

    def __init__(self, a: float | None = None) -> None:
        self._a = a

    def observed_ttft_s(self, upstream: UpstreamName) -> float | None:
        return self._a if upstream == "a" else None


def read_code(request: ParsedRequest) -> PromptFeatures:
    assert request.body
    return CODE


def never_read(request: ParsedRequest) -> PromptFeatures:
    raise AssertionError(f"nothing needs to be known of {request}")


def request(cap: int | None = 50, operation: Operation = Operation.CHAT, model: str = "m", bound: int = 0) -> ParsedRequest:
    return ParsedRequest(operation, ModelName(model), b"{}", max_completion_tokens=cap, prompt_tokens_bound=bound)


def caller(tier: str = "default") -> Principal:
    return Principal(KeyId("k"), TenantId("t"), UserId("u"), tier=tier)


def plan(
    router: Router, asked: ParsedRequest | None = None, route: Route = ROUTE, *, tier: str = "default", fleet: Nothing | None = None
) -> Plan:
    return router.plan(asked or request(), route, caller(tier), "", fleet or Nothing(), now=0.0)


def test_with_nothing_configured_the_plan_is_one_made_before() -> None:
    """The same one each time; a router that knows no routes takes any."""
    router = Router([ROUTE], read_features=never_read)
    assert Plan(ROUTE) == plan(router)
    assert plan(router) is plan(router)
    assert Plan(ROUTE) == plan(Router())
    assert Plan(Route("m", (C,))) == plan(router, route=Route("m", (C,)))
    assert repr(router) == "Router(0 rules, 0 routes with an order or a budget)"


def test_settings_of_one_route_leave_the_others_alone() -> None:
    """A budget of `m` costs `other` nothing."""
    router = Router([ROUTE, OTHER], settings=[BUDGET, RouteSettings("other")], read_features=never_read)
    assert plan(router, route=OTHER) is plan(router, route=OTHER)
    assert repr(router) == "Router(0 rules, 1 routes with an order or a budget)"


def test_a_rule_that_holds_puts_its_targets_in_front() -> None:
    """The route's own stand by, each once, and what was read comes along."""
    router = Router([ROUTE], rules=[Rule("code", Conditions(has=("code",)), (B, C))], read_features=read_code)
    assert Plan(Route("m", (B, C, A)), "code", "rule code holds", features=CODE) == plan(router)


def test_a_rule_that_changes_nothing_is_told_all_the_same() -> None:
    """It decided, and the route stays the very same."""
    router = Router([ROUTE], rules=[Rule("all", Conditions(), (A,))], read_features=never_read)
    planned = plan(router)
    assert ("all", None) == (planned.rule, planned.features)
    assert planned.route is ROUTE


def test_a_rule_for_other_models_is_not_looked_at() -> None:
    """Its pattern is matched with the model that the client asked for."""
    router = Router([ROUTE], rules=[Rule("gpt", Conditions(), (C,), model="gpt*")], read_features=never_read)
    assert Plan(ROUTE) == plan(router)
    assert plan(router, request(model="gpt-4o")).rule == "gpt"


def test_invented_model_names_do_not_grow_the_memory_for_ever() -> None:
    """Names chosen by clients cannot fill the memory: the answers kept are bounded."""
    router = Router([ROUTE], rules=[Rule("gpt", Conditions(), (C,), model="gpt*")], read_features=never_read)
    for number in range(5_000):
        plan(router, request(model=f"invented-{number}"))
    assert len(router._memory) <= 4_096


def test_the_promise_to_the_callers_tier_orders_the_targets() -> None:
    """VIPs get the fast pool, others the cheap one; the reason says which and why."""
    router = Router([ROUTE], settings=[BY_PROMISE], promises={"vip": 0.2, "batch": 3.0, "mad": 0.01}, read_features=never_read)
    assert Plan(ROUTE) == plan(router, tier="vip")
    assert Plan(Route("m", (B, A)), "sla", "b is the cheapest that keeps 3 s to the first token") == plan(router, tier="batch")
    assert Plan(Route("m", (B, A)), "sla", "b is the cheapest, and nothing is promised to this tier") == plan(router)
    observed = plan(router, tier="vip", fleet=Nothing(5.0))
    assert Plan(Route("m", (B, A)), "sla", "none keeps 0.2 s to the first token, and b is the fastest") == observed
    assert plan(router, tier="mad").route is ROUTE


def test_an_unknown_target_is_tried_where_no_known_one_will_do() -> None:
    """And the reason says that it is not known."""
    settings = RouteSettings("m", (Candidate(A, 1.0), Candidate(B)))
    router = Router([ROUTE], settings=[settings], promises={"vip": 0.2})
    assert plan(router, tier="vip").reason == "b is the cheapest of those whose time to first token is not known"


def test_a_rule_goes_before_the_promise() -> None:
    """The rule chooses the pool, the promise orders what stands behind it."""
    router = Router([ROUTE], settings=[BY_PROMISE], rules=[Rule("all", Conditions(), (C,))], read_features=never_read)
    assert Plan(Route("m", (C, B, A)), "all", "b is the cheapest, and nothing is promised to this tier; rule all holds") == plan(router)


def test_a_request_over_budget_is_answered_shorter() -> None:
    """The client is told; the route stays."""
    router = Router([ROUTE], settings=[BUDGET], read_features=lambda _: PromptFeatures(800))
    expected = "about 1300 tokens are over the budget of 1000, so the answer is capped at 200"
    planned = plan(router, request(500))
    assert Plan(ROUTE, "budget", expected, BodyChanges(200), "L1; reason=over_budget", PromptFeatures(800)) == planned
    assert Plan(ROUTE, features=PromptFeatures(800)) == plan(router, request(200))


def test_a_request_that_cannot_fit_goes_to_the_smaller_model_first() -> None:
    """Before the targets of a rule too."""
    router = Router([ROUTE], settings=[BUDGET], rules=[Rule("all", Conditions(), (B,))], read_features=lambda _: PromptFeatures(950))
    planned = plan(router, request(500))
    assert (Route("m", (SMALL, B, A)), "budget", BodyChanges(100)) == (planned.route, planned.rule, planned.changes)
    assert planned.degraded == "L1; reason=over_budget"
    assert planned.reason == (
        "rule all holds; about 1450 tokens are over the budget of 1000, so the answer is capped at 100, and a smaller model at c goes first"
    )


def test_a_request_with_a_short_answer_only_goes_elsewhere() -> None:
    """There is nothing to shorten in what the client asked for."""
    router = Router([ROUTE], settings=[BUDGET], read_features=lambda _: PromptFeatures(2_000))
    planned = plan(router, request(50))
    assert (Route("m", (SMALL, A, B)), "budget", None, "L1; reason=over_budget") == (
        planned.route,
        planned.rule,
        planned.changes,
        planned.degraded,
    )
    assert planned.reason == "about 2050 tokens are over the budget of 1000, and a smaller model at c goes first"


def test_over_budget_without_a_way_out_goes_where_it_would_have_gone() -> None:
    """A budget never refuses; nothing was taken from the client, so nothing is said."""
    router = Router([ROUTE], settings=[RouteSettings("m", None, Budget(1_000, 100))], read_features=lambda _: PromptFeatures(2_000))
    planned = plan(router, request(50))
    assert (ROUTE, "", None, None) == (planned.route, planned.rule, planned.changes, planned.degraded)
    assert planned.reason == "about 2050 tokens are over the budget of 1000"


def test_a_rule_and_a_shorter_answer_are_both_told() -> None:
    """The rule chose the target, the budget the length."""
    router = Router([ROUTE], settings=[BUDGET], rules=[Rule("all", Conditions(), (B,))], read_features=lambda _: PromptFeatures(800))
    planned = plan(router, request(500))
    assert ("all", BodyChanges(200), "L1; reason=over_budget") == (planned.rule, planned.changes, planned.degraded)


def test_a_small_request_within_budget_is_not_read() -> None:
    """Its bound is proof enough."""
    router = Router([ROUTE], settings=[BUDGET], read_features=never_read)
    assert Plan(ROUTE) == plan(router, request(50, bound=900))


def test_embeddings_take_the_route_as_it_is() -> None:
    """Vectors of two models must not meet in one index: no rule, promise or budget may move them."""
    router = Router([ROUTE], settings=[BY_PROMISE], rules=[Rule("all", Conditions(), (C,))], read_features=never_read)
    assert Plan(ROUTE) == plan(router, request(operation=Operation.EMBEDDING))


def test_features_can_be_asked_for_by_themselves() -> None:
    """Others need them too; a plain router knows the bound only."""
    assert CODE == Router(read_features=read_code).features(request())
    assert PromptFeatures(70) == Router().features(request(bound=70))


@pytest.mark.parametrize("operation", [Operation.CHAT, Operation.EMBEDDING])
def test_an_explanation_has_the_plan_and_all_that_led_to_it(operation: Operation) -> None:
    """Every rule for this model is judged, also after the one that won; embeddings are judged by none."""
    rules = [
        Rule("gpt", Conditions(), (C,), model="gpt*"),
        Rule("xml", Conditions(has=("xml",)), (C,)),
        Rule("code", Conditions(has=("code",)), (C,)),
        Rule("all", Conditions(), (B,)),
    ]
    settings = RouteSettings("m", BY_PROMISE.candidates, Budget(1_000, 100, SMALL))
    router = Router([ROUTE], settings=[settings], rules=rules, promises={"vip": 0.2}, read_features=read_code)
    asked = request(500, operation)
    explained = router.explain(asked, ROUTE, caller("vip"), "", Nothing(), now=0.0)
    assert plan(router, asked, tier="vip") == explained.plan
    assert (CODE, 0.2) == (explained.features, explained.promised_ttft_s)
    if operation is Operation.EMBEDDING:
        assert ((), (), None) == (explained.rules, explained.standings, explained.fit)
        return
    assert [("xml", False), ("code", True), ("all", True)] == [(verdict.name, verdict.held) for verdict in explained.rules]
    assert ["a", "b"] == [standing.target.upstream for standing in explained.standings]
    assert explained.fit is not None
    assert explained.fit.estimate == 1_400


def test_an_explanation_of_a_plain_route_is_short() -> None:
    """Neither order nor budget nor rules: the prompt is read all the same, since people ask about it."""
    explained = Router([ROUTE], read_features=read_code).explain(request(), ROUTE, caller(), "", Nothing(), now=0.0)
    assert (Plan(ROUTE), CODE, (), None, (), None) == (
        explained.plan,
        explained.features,
        explained.rules,
        explained.promised_ttft_s,
        explained.standings,
        explained.fit,
    )
