"""Prepared answers: which one a request gets, and how an outage moves from the holding answer to the rules."""

from __future__ import annotations

import pytest

from tidegate.policy.degradation.answers import Degradation, HeldAnswer, PreparedAnswer

ROUTE = "qwen*"
SENTENCE = "One moment, please."
HELD = PreparedAnswer(SENTENCE, "L2", "holding")
KNOWN = PreparedAnswer("Look here.", "L3", "rules")
HANDED_OVER = PreparedAnswer("Ask our people.", "L3", "hand_over")


class Rules:
    """Knows one question, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def decide(self, question: str, feature: str) -> str | None:
        self.asked.append((question, feature))
        return "Look here." if question == "known" else None


def degradation(rules: Rules | None, holding: tuple[str, ...] = ("default",)) -> Degradation:
    return Degradation({feature: HeldAnswer(SENTENCE) for feature in holding}, 60.0, rules, "Ask our people.")


def test_an_answer_without_links_is_its_sentence() -> None:
    """Nothing is added to what the operator wrote."""
    assert SENTENCE == HeldAnswer(SENTENCE).text


def test_links_follow_the_sentence_as_a_markdown_list() -> None:
    """Each on its line and in their order, so that a client can show or split them."""
    held = HeldAnswer(SENTENCE, (("Status", "https://example.com/status"), ("FAQ", "https://example.com/faq")))
    assert f"{SENTENCE}\n\n- [Status](https://example.com/status)\n- [FAQ](https://example.com/faq)" == held.text


def test_an_outage_is_held_for_a_while_and_then_the_rules_answer() -> None:
    """The time counts from the outage's first failed request, whoever asks."""
    answers = degradation(Rules())
    answers.route_failed(ROUTE, now=100.0)
    answers.route_failed(ROUTE, now=130.0)
    assert HELD == answers.answer("known", "", ROUTE, now=100.0)
    assert HELD == answers.answer("known", "", ROUTE, now=159.9)
    assert KNOWN == answers.answer("known", "", ROUTE, now=160.0)
    assert HANDED_OVER == answers.answer("unknown", "", ROUTE, now=160.0)


def test_an_answered_request_ends_the_outage() -> None:
    """The next failure begins another one, which is held anew; other routes have their own."""
    answers = degradation(Rules())
    answers.route_answered(ROUTE, now=99.0)
    answers.route_failed(ROUTE, now=100.0)
    answers.route_failed("other", now=100.0)
    answers.route_answered(ROUTE, now=200.0)
    answers.route_failed(ROUTE, now=201.0)
    assert HELD == answers.answer("known", "", ROUTE, now=210.0)
    assert KNOWN == answers.answer("known", "", "other", now=210.0)


def test_an_answer_before_the_failure_was_noted_is_the_first_of_the_outage() -> None:
    """The order in which a flow tells and asks does not matter."""
    assert HELD == degradation(Rules()).answer("known", "", ROUTE, now=5.0)


def test_without_rules_the_holding_answer_stays() -> None:
    """However long the outage lasts."""
    answers = degradation(None)
    answers.route_failed(ROUTE, now=0.0)
    assert HELD == answers.answer("known", "", ROUTE, now=1e6)


def test_a_feature_without_a_holding_answer_gets_the_rules_at_once() -> None:
    """Unless there is one for all others; the rules are told the feature."""
    rules = Rules()
    answers = degradation(rules, ("faq",))
    answers.route_failed(ROUTE, now=0.0)
    assert KNOWN == answers.answer("known", "search", ROUTE, now=0.0)
    assert HELD == answers.answer("known", "faq", ROUTE, now=0.0)
    assert [("known", "search")] == rules.asked


def test_each_feature_has_its_own_holding_answer() -> None:
    """`default` is for those that have none."""
    answers = Degradation({"default": HeldAnswer("Wait."), "code": HeldAnswer("Compiling.")}, 60.0, None, "")
    assert [
        PreparedAnswer("Compiling.", "L2", "holding"),
        PreparedAnswer("Wait.", "L2", "holding"),
        PreparedAnswer("Wait.", "L2", "holding"),
    ] == [answers.answer("", feature, ROUTE, now=0.0) for feature in ("code", "search", "")]


def test_nothing_prepared_is_no_answer() -> None:
    """A feature that nobody prepared for gets its error, where there are neither rules nor a default."""
    assert degradation(None, ("faq",)).answer("known", "search", ROUTE, now=0.0) is None


@pytest.mark.parametrize("rules", [None, Rules()])
def test_it_says_what_it_is(rules: Rules | None) -> None:
    """Its repr names features and failing routes, and no text."""
    answers = degradation(rules)
    answers.route_failed(ROUTE, now=0.0)
    assert f"Degradation(holding=['default'], rules={rules is not None}, failing=['qwen*'])" == repr(answers)


def test_an_outage_goes_on_through_a_reload() -> None:
    """Whoever was held long enough is not asked for patience again."""
    before = degradation(Rules())
    before.route_failed(ROUTE, now=100.0)
    after = Degradation({"default": HeldAnswer(SENTENCE)}, 60.0, Rules(), "Ask our people.", before=before)
    assert KNOWN == after.answer("known", "", ROUTE, now=160.0)
    before.route_answered(ROUTE, now=161.0)
    assert KNOWN == after.answer("known", "", ROUTE, now=162.0)
