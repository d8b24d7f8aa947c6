"""The rules of `limits`: what each says, what cannot be meant, and what the gateway makes of them."""

from __future__ import annotations

import pytest

from tidegate.config.check import check
from tidegate.config.check_limits import MOST_RULES
from tidegate.config.environment import with_environment
from tidegate.config.explain import explain
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem
from tidegate.config.schema import Configuration
from tidegate.domain.limits import CounterSpec, LimitMode, LimitRule, Meter, Period, Resource, Scope, ScopeMatch, StoreDown
from tidegate.ports import RuleStatistics
from tidegate.wiring.limits import limit_rules_of, rule_counters

BASE = """\
upstreams: {cluster: {dialect: vllm, base_url: "http://10.0.0.5:8000/v1"}}
routes: [{model: 'qwen*', targets: [{upstream: cluster}]}, {model: plain, targets: [{upstream: cluster}]}]
tiers: {vip: {concurrency: 9}}
"""


def load(*rules: str, more: str = "") -> Loaded:
    """Put rules after the routes; they begin on line 6."""
    loaded = load_text(BASE + "limits:\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules) + more, {})
    assert isinstance(loaded, Loaded), loaded
    return loaded


def configuration(*rules: str) -> Configuration:
    return load(*rules).configuration


def problems(*rules: str, more: str = "") -> list[Problem]:
    loaded = load(*rules, more=more)
    return check(with_environment(loaded.configuration, {}), loaded.source, file_exists=bool)


def test_rules_become_limits() -> None:
    """Every kind of meter, by what a rule says and not by a name for it."""
    made = limit_rules_of(
        configuration(
            "name: t, ceiling: 1000, scope: {tenant: each}",
            "name: i, of: input_tokens, ceiling: 9, window_s: 1h, scope: {tier: 'v*', model: each}, on_store_down: deny",
            "name: r, of: requests, ceiling: 50, window_s: 1s, burst: 100",
            "name: d, of: output_tokens, ceiling: 5, per: month, mode: shadow",
            "name: c, of: concurrency, ceiling: 3, scope: {route: plain}",
        )
    )
    assert made == (
        LimitRule("t", Resource.TOKENS, CounterSpec(Meter.SLIDING, 1000), (ScopeMatch(Scope.TENANT),)),
        LimitRule(
            "i",
            Resource.INPUT_TOKENS,
            CounterSpec(Meter.SLIDING, 9, 3600.0),
            (ScopeMatch(Scope.TIER, "v*", each=False), ScopeMatch(Scope.MODEL)),
            on_store_down=StoreDown.DENY,
        ),
        LimitRule("r", Resource.REQUESTS, CounterSpec(Meter.GCRA, 50, 1.0, 100)),
        LimitRule("d", Resource.OUTPUT_TOKENS, CounterSpec(Meter.CALENDAR, 5, period=Period.MONTH), mode=LimitMode.SHADOW),
        LimitRule("c", Resource.CONCURRENCY, CounterSpec(Meter.PLACES, 3), (ScopeMatch(Scope.ROUTE, "plain", each=False),)),
    )


def test_budgets_are_limits_too() -> None:
    """They follow the rules."""
    money = 'budgets: [{name: b, amount: 10, per: day}]\nprices: {models: [{model: "*", input: 1, output: 1}]}\n'
    made = limit_rules_of(load("name: t, ceiling: 1", more=money).configuration)
    assert [(rule.name, rule.resource) for rule in made] == [("t", Resource.TOKENS), ("b", Resource.COST)]


def test_limits_are_explained() -> None:
    """In the words of a person: how much of what, counted how, for whom."""
    text = explain(
        configuration(
            "name: t, ceiling: 1000, scope: {tenant: each, model: 'qwen*'}",
            "name: r, of: requests, ceiling: 50, window_s: 1s, burst: 100",
            "name: d, of: output_tokens, ceiling: 5, per: month, mode: shadow",
            "name: c, of: concurrency, ceiling: 3, scope: {route: plain}",
        )
    )
    assert (
        "Limits over keys\n"
        "  t  1,000 tokens in 60 s for each tenant, model qwen*\n"
        "  r  50 requests per 1 s, 100 at once for everybody together\n"
        "  d  5 output tokens per month for everybody together, only counted\n"
        "  c  3 requests at once for route plain\n"
    ) in text


PROBLEMS = [
    ("name: 'a b', ceiling: 1", "error", '"a b" cannot name a limit', "use letters"),
    ("name: key-tokens, ceiling: 1", "error", '"key-tokens" is the name of a ceiling that every key has', "choose another"),
    ("name: c, of: concurrency, ceiling: 1, window_s: 5s", "error", "window_s says nothing of what runs at the same time", "delete it"),
    ("name: c, of: concurrency, ceiling: 1, per: day", "error", "per says nothing of what runs", "delete it"),
    ("name: p, ceiling: 1, per: day, burst: 5", "error", "a limit per day has no burst", "delete burst, or per"),
    ("name: s, ceiling: 1, scope: {tenant: ' '}", "error", "the tenant of this limit is empty or has spaces", "write a name"),
    ("name: s, ceiling: 1, scope: {tier: vpi}", "warning", 'no tier is called "vpi"', 'did you mean "vip"?'),
    ("name: s, ceiling: 1, scope: {tier: bronze}", "warning", 'no tier is called "bronze"', "there are: default, vip"),
    ("name: s, ceiling: 1, scope: {route: plane}", "warning", 'no route is called "plane"', 'did you mean "plain"?'),
    ("name: s, ceiling: 1, scope: {model: plane}", "warning", 'no route takes requests for "plane"', 'did you mean "plain"?'),
    ("name: s, ceiling: 1, scope: {model: other}", "warning", "this limit never holds", "add a route"),
]


@pytest.mark.parametrize(("rule", "severity", "message", "hint"), PROBLEMS, ids=[message for _, _, message, _ in PROBLEMS])
def test_what_cannot_be_meant_is_found(rule: str, severity: str, message: str, hint: str) -> None:
    """On its line, with what to do."""
    (problem,) = problems(rule)
    assert (problem.line, problem.severity) == (6, severity)
    assert message in problem.message
    assert hint in (problem.hint or "")


def test_what_is_right_is_passed_over() -> None:
    """Patterns that hold for something, and `each`."""
    everything = "key: each, user: each, tenant: each, tier: each, feature: each, model: each, route: each"
    assert problems(f"name: a, ceiling: 1, scope: {{{everything}}}", "name: b, ceiling: 1, scope: {tier: default, model: qwen3}") == []
    assert problems("name: a, ceiling: 1, scope: {model: 'x*', route: 'qwen*', tier: 'v*'}") == []


def test_names_are_told_apart() -> None:
    """Two limits, or a limit and a budget, with one name could not be told apart in a refusal."""
    (twice,) = problems("name: a, ceiling: 1", "name: a, ceiling: 2")
    assert (twice.line, twice.message) == (7, 'two limits are called "a"')
    money = 'budgets: [{name: a, amount: 10}]\nprices: {models: [{model: "*", input: 1, output: 1}]}\n'
    assert any(problem.message == 'a budget is called "a" too' for problem in problems("name: a, ceiling: 1", more=money))


def test_there_may_not_be_too_many() -> None:
    """Each is looked at for everybody."""
    (problem,) = problems(*(f"name: r{number}, ceiling: 1" for number in range(MOST_RULES + 1)))
    assert problem.message == f"there are {MOST_RULES + 1} rules of limits, more than {MOST_RULES}"


def test_what_rules_did_becomes_counters() -> None:
    """Two figures for each rule."""
    counted = rule_counters([RuleStatistics("t", 2, 0), RuleStatistics("d", 0, 3)])
    assert counted == {"limits.denied.t": 2.0, "limits.would_deny.t": 0.0, "limits.denied.d": 0.0, "limits.would_deny.d": 3.0}
