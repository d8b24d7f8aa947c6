"""Laws of the prepared answers: no clock of their own, no memory but of outages, and never a step back within one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.degradation.answers import Degradation, HeldAnswer, PreparedAnswer

ROUTES = ("a", "b")
HOLD_S = 8.0

steps = st.lists(
    st.tuples(
        st.sampled_from(("failed", "answered", "ask")),
        st.sampled_from(ROUTES),
        st.sampled_from(("", "faq", "other")),
        st.integers(-8, 24),
    ),
    max_size=60,
)
"""What happens to which route, the feature that asks, and quarter seconds since the step before, some of them backwards."""


class Rules:
    def decide(self, question: str, feature: str) -> str | None:
        return f"{question} of {feature}" if feature != "other" else None


def _answers(moves: list[tuple[str, str, str, int]], *, epoch: float = 0.0) -> list[PreparedAnswer | None]:
    degradation = Degradation({"faq": HeldAnswer("wait"), "default": HeldAnswer("hold")}, HOLD_S, Rules(), "people")
    now, given_answers = epoch, []
    for what, route, feature, quarters in moves:
        now += quarters / 4
        match what:
            case "failed":
                degradation.route_failed(route, now=now)
            case "answered":
                degradation.route_answered(route, now=now)
            case _:
                given_answers.append(degradation.answer("q", feature, route, now=now))
    return given_answers


@given(steps)
def test_a_shifted_clock_changes_no_answer(moves: list[tuple[str, str, str, int]]) -> None:
    """Law: adding a constant to all times gives the same answers, and so does saying the same again."""
    assert _answers(moves) == _answers(moves, epoch=2.0**20 + 0.25) == _answers(moves)


@given(st.lists(st.integers(0, 24), min_size=1, max_size=40))
def test_an_outage_goes_from_holding_to_rules_and_not_back(waits: list[int]) -> None:
    """Law: within one outage, once the rules have answered, they answer; until `hold_for_s` they have not."""
    degradation = Degradation({"default": HeldAnswer("hold")}, HOLD_S, Rules(), "people")
    now, levels = 0.0, []
    for quarters in waits:
        degradation.route_failed("a", now=now)
        answer = degradation.answer("q", "", "a", now=now)
        assert answer is not None
        levels.append(answer.level)
        assert (answer.level == "L3") == (now >= HOLD_S)
        now += quarters / 4
    assert sorted(levels) == levels
