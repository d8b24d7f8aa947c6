"""Rules: which conditions hold, how little is read to tell, and what is said about it."""

from __future__ import annotations

import pytest

from tidegate.domain.features import PromptFeatures
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName, UpstreamName
from tidegate.domain.upstream import Target
from tidegate.policy.routing.rules import CompiledRule, Conditions, Facts, Rule, first_that_holds

PROMPT = PromptFeatures(500, frozenset({"code", "json"}), (("zh", 0.6), ("latin", 0.4)))
USE = (Target(UpstreamName("b")),)


class Reader:
    """Gives the same features for every request, and counts how often it is asked."""

    def __init__(self, features: PromptFeatures = PROMPT) -> None:
        self.features = features
        self.reads = 0

    def __call__(self, request: ParsedRequest) -> PromptFeatures:
        assert request.model == "m"
        self.reads += 1
        return self.features


def facts(reader: Reader | None = None, *, bound: int = 2_000, stream: bool = False) -> Facts:
    request = ParsedRequest(Operation.CHAT, ModelName("m"), b"{}", stream=stream, prompt_tokens_bound=bound)
    return Facts(request, tier="vip", feature="review", read=reader or Reader())


def rule(when: Conditions, name: str = "r") -> CompiledRule:
    return CompiledRule(Rule(name, when, USE))


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (Conditions(), True),
        (Conditions(min_prompt_tokens=500), True),
        (Conditions(min_prompt_tokens=501), False),
        (Conditions(max_prompt_tokens=500), True),
        (Conditions(max_prompt_tokens=499), False),
        (Conditions(has=("code", "json")), True),
        (Conditions(has=("code", "xml")), False),
        (Conditions(lacks=("xml", "images")), True),
        (Conditions(lacks=("xml", "json")), False),
        (Conditions(language="zh", language_share=0.6), True),
        (Conditions(language="latin", language_share=0.5), False),
        (Conditions(language="ko"), False),
        (Conditions(tiers=("gold", "vip")), True),
        (Conditions(tiers=("gold",)), False),
        (Conditions(features=("review",)), True),
        (Conditions(features=("chat",)), False),
        (Conditions(stream=False), True),
        (Conditions(stream=True), False),
        (Conditions(tiers=("vip",), has=("code",), min_prompt_tokens=600), False),
        (Conditions(tiers=("vip",), has=("code",), max_prompt_tokens=600), True),
    ],
)
def test_a_rule_holds_when_all_of_its_conditions_do(when: Conditions, *, expected: bool) -> None:
    """Each condition by itself, and together; the verdict for people agrees."""
    assert expected is rule(when).holds(facts())
    assert expected is rule(when).verdict(facts()).held


def test_a_prompt_is_read_only_when_everything_else_holds_and_once() -> None:
    """Reading costs more than all other conditions together."""
    reader = Reader()
    looked_at = facts(reader)
    assert (
        first_that_holds([rule(Conditions(tiers=("gold",), has=("code",))), rule(Conditions(stream=True, has=("code",)))], looked_at)
        is None
    )
    assert reader.reads == 0
    last = rule(Conditions(has=("code",), lacks=("xml",), language="zh"))
    assert first_that_holds([rule(Conditions(has=("xml",))), last], looked_at) is last
    assert looked_at.prompt is PROMPT
    assert reader.reads == 1


def test_the_cheap_bound_is_enough_for_a_short_prompt() -> None:
    """What surely is shorter need not be read, whichever side of the condition it stands on; an unknown bound proves nothing."""
    reader = Reader()
    assert not rule(Conditions(min_prompt_tokens=2_001)).holds(facts(reader))
    assert rule(Conditions(max_prompt_tokens=2_000)).holds(facts(reader))
    assert reader.reads == 0
    assert not rule(Conditions(min_prompt_tokens=2_001)).holds(facts(reader, bound=0))
    assert reader.reads == 1


def test_the_first_rule_that_holds_wins() -> None:
    """Later ones are not looked at."""
    rules = [rule(Conditions(stream=True), "a"), rule(Conditions(), "b"), rule(Conditions(), "c")]
    assert first_that_holds(rules, facts()) is rules[1]
    assert first_that_holds(rules, facts(stream=True)) is rules[0]
    assert first_that_holds([], facts()) is None
    assert repr(rules[1]) == "CompiledRule(b)"


def test_a_rule_concerns_the_models_that_its_pattern_names() -> None:
    """Shell style, as routes."""
    compiled = CompiledRule(Rule("r", Conditions(), USE, model="qwen*"))
    assert compiled.concerns("qwen3")
    assert not compiled.concerns("gpt-4o")
    assert rule(Conditions()).concerns("anything")


def test_a_verdict_says_of_every_condition_what_was_wanted_and_found() -> None:
    """Also of those after one that failed."""
    when = Conditions(
        min_prompt_tokens=1_000,
        max_prompt_tokens=9_000,
        has=("xml",),
        lacks=("code",),
        language="zh",
        tiers=("gold", "silver"),
        features=("chat",),
        stream=True,
    )
    verdict = rule(when).verdict(facts())
    assert [(check.wanted, check.found, check.held) for check in verdict.checks] == [
        ("tier gold or silver", "vip", False),
        ("business feature chat", "review", False),
        ("a stream", "no stream", False),
        ("prompt of 1,000 tokens or more", "about 500", False),
        ("prompt of 9,000 tokens or fewer", "about 500", True),
        ("has xml", "code, json", False),
        ("lacks code", "code, json", False),
        ("zh in 30% of the letters or more", "60%", True),
    ]


def test_a_verdict_has_words_for_what_is_not_there() -> None:
    """No feature named, no trait found."""
    request = ParsedRequest(Operation.CHAT, ModelName("m"), b"{}")
    nothing = Facts(request, tier="default", feature="", read=Reader(PromptFeatures(1)))
    found = [check.found for check in rule(Conditions(features=("chat",), has=("code",))).verdict(nothing).checks]
    assert found == ["none", "none of them"]
