"""Laws of the router: same facts same plan, no target lost or doubled, and later rules cannot disturb an earlier one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.features import PromptFeatures, Script, Trait
from tidegate.domain.principal import Principal
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import KeyId, ModelName, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Route, Target
from tidegate.policy.metering.estimate import DEFAULT_COMPLETION_TOKENS
from tidegate.policy.routing.budget import Budget
from tidegate.policy.routing.router import Plan, Router, RouteSettings
from tidegate.policy.routing.rules import Conditions, Rule
from tidegate.policy.routing.sla import Candidate

TIERS = ("default", "vip", "batch")
FEATURES = ("", "chat", "review")
MODELS = ("qwen3", "qwen-max", "gpt-4o")

targets = st.builds(Target, st.sampled_from("abcd").map(UpstreamName), st.none() | st.sampled_from(["x", "y"]).map(ModelName))
target_lists = st.lists(targets, min_size=1, max_size=4, unique=True).map(tuple)
tokens = st.integers(1, 8_000)
conditions = st.builds(
    Conditions,
    min_prompt_tokens=st.none() | tokens,
    max_prompt_tokens=st.none() | tokens,
    has=st.lists(st.sampled_from(Trait), max_size=2).map(tuple),
    lacks=st.lists(st.sampled_from(Trait), max_size=2).map(tuple),
    language=st.none() | st.sampled_from(Script),
    language_share=st.sampled_from([0.1, 0.5, 1.0]),
    tiers=st.lists(st.sampled_from(TIERS), max_size=2).map(tuple),
    features=st.lists(st.sampled_from(FEATURES), max_size=2).map(tuple),
    stream=st.none() | st.booleans(),
)
rule_lists = st.lists(
    st.builds(Rule, st.sampled_from(["r", "s", "t"]), conditions, target_lists, st.sampled_from(["*", "qwen*", "gpt-4o"])), max_size=4
)
budgets = st.none() | st.builds(Budget, st.integers(1, 10_000), st.integers(1, 500), st.none() | targets, st.none() | targets)
requests = st.builds(
    ParsedRequest,
    st.sampled_from([Operation.CHAT, Operation.COMPLETION, Operation.EMBEDDING]),
    st.sampled_from(MODELS).map(ModelName),
    st.just(b"{}"),
    stream=st.booleans(),
    max_completion_tokens=st.none() | tokens,
    choices=st.integers(1, 4),
    prompt_tokens_bound=st.sampled_from([0, 8_000, 100_000]),
)
prompts = st.builds(
    PromptFeatures,
    tokens,
    st.frozensets(st.sampled_from(list(Trait)).map(str), max_size=4),
    st.sampled_from([(), (("zh", 0.6), ("latin", 0.4)), (("ko", 1.0),)]),
)
times = st.none() | st.sampled_from([0.05, 0.2, 1.0, 5.0])


class Seen:
    def __init__(self, ttft_s: dict[str, float | None]) -> None:
        self._ttft_s = ttft_s

    def observed_ttft_s(self, upstream: UpstreamName) -> float | None:
        return self._ttft_s.get(upstream)


class World:
    """Everything that a plan depends on."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.route = Route("*", draw(target_lists))
        candidates = tuple(Candidate(each, draw(times), draw(st.sampled_from([0.5, 1.0, 2.0]))) for each in self.route.targets)
        self.settings = RouteSettings("*", candidates if draw(st.booleans()) else None, draw(budgets))
        self.rules = draw(rule_lists)
        self.promises = draw(st.dictionaries(st.sampled_from(TIERS), st.sampled_from([0.1, 1.0])))
        self.request = draw(requests)
        self.prompt = draw(prompts)
        self.tier, self.feature = draw(st.sampled_from(TIERS)), draw(st.sampled_from(FEATURES))
        self.seen = Seen(draw(st.dictionaries(st.sampled_from("abcd"), times)))

    def router(self, rules: list[Rule]) -> Router:
        return Router([self.route], settings=[self.settings], rules=rules, promises=self.promises, read_features=lambda _: self.prompt)

    def plan(self, router: Router, *, now: float = 0.0) -> Plan:
        caller = Principal(KeyId("k"), TenantId("t"), UserId("u"), tier=self.tier)
        return router.plan(self.request, self.route, caller, self.feature, self.seen, now=now)


worlds = st.composite(World)()


@given(worlds)
def test_same_facts_same_plan(world: World) -> None:
    """Law: neither earlier requests nor the time of day matter, nor which of two equal routers is asked."""
    router = world.router(world.rules)
    first = world.plan(router)
    assert first == world.plan(router, now=1e6) == world.plan(world.router(list(world.rules)))


@given(worlds)
def test_the_routes_own_targets_stand_by_each_once(world: World) -> None:
    """Law: nothing that could serve is lost, and nothing is tried twice."""
    planned = world.plan(world.router(world.rules)).route
    assert world.route.pattern == planned.pattern
    assert set(world.route.targets) <= set(planned.targets)
    assert len(planned.targets) == len(set(planned.targets))


@given(worlds, rule_lists)
def test_rules_after_one_that_holds_change_nothing(world: World, more: list[Rule]) -> None:
    """Law: the first that holds wins, whatever is written below it."""
    always = [*world.rules, Rule("always", Conditions(), (Target(UpstreamName("d")),))]
    assert world.plan(world.router(always)) == world.plan(world.router([*always, *more]))


@given(worlds, rule_lists)
def test_rules_that_do_not_hold_change_only_what_was_read(world: World, more: list[Rule]) -> None:
    """Law: a rule in front that does not hold leaves the plan as it was."""
    never = [Rule(rule.name, Conditions(tiers=("nobody",)), rule.use, rule.model) for rule in more]
    assert world.plan(world.router(world.rules)) == world.plan(world.router([*never, *world.rules]))


@given(worlds)
def test_a_body_is_only_ever_lowered_and_the_client_is_told(world: World) -> None:
    """Law: the cap that is sent is below what the client asked for, and comes with its label."""
    planned = world.plan(world.router(world.rules))
    if planned.changes is not None:
        assert planned.changes.temperature is None
        assert planned.changes.max_completion_tokens is not None
        assert 0 < planned.changes.max_completion_tokens < (world.request.max_completion_tokens or DEFAULT_COMPLETION_TOKENS)
        assert planned.degraded is not None


@given(worlds)
def test_the_explanation_agrees_with_the_plan(world: World) -> None:
    """Law: what is said to people is what is done: the first rule that held is the one that the plan names, or the budget overruled it."""
    router = world.router(world.rules)
    caller = Principal(KeyId("k"), TenantId("t"), UserId("u"), tier=world.tier)
    explained = router.explain(world.request, world.route, caller, world.feature, world.seen, now=0.0)
    assert world.plan(router) == explained.plan
    held = next((verdict.name for verdict in explained.rules if verdict.held), None)
    if held is not None:
        assert explained.plan.rule in {held, "budget"}
    elif explained.plan.rule:
        assert explained.plan.rule in {"sla", "budget"}
    if explained.plan.changes is not None:
        assert explained.fit is not None
        assert explained.fit.cap == explained.plan.changes.max_completion_tokens
