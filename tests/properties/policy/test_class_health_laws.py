"""Laws of class health: evidence before a diversion, a way back out of every one, and no clock of its own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.features import PromptFeatures
from tidegate.domain.units import UpstreamName
from tidegate.domain.upstream import Target
from tidegate.policy.degradation.class_health import ClassHealth, ClassSettings
from tidegate.policy.degradation.prompt_classes import classes_of

ROUTE = "r"
RECOVER_S = 8.0
WINDOW_S = 16.0
MIN_CALLS = 3
KINDS = (
    PromptFeatures(10),
    PromptFeatures(10, frozenset({"table"})),
    PromptFeatures(5_000, frozenset({"code"}), (("zh", 1.0),)),
    PromptFeatures(10, frozenset({"table", "code"}), (("latin", 1.0),)),
)

Call = tuple[int, int, bool]
"""Quarter seconds since the call before (some backwards), the kind of prompt, and whether the primary fails it."""


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    """Phases of a primary, each with one kind of prompt that it fails or none, and one call in ten against the rule."""
    moves: list[Call] = []
    triples = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, len(KINDS) - 1), st.integers(0, 9)), min_size=10, max_size=40)
    for _ in range(draw(st.integers(1, 4))):
        sick = draw(st.sampled_from((None, *range(len(KINDS)))))
        moves += [(quarters, kind, (kind == sick) != (odd == 0)) for quarters, kind, odd in draw(triples)]
    return moves


def _health(min_calls: int = MIN_CALLS) -> ClassHealth:
    watched = ClassSettings(
        Target(UpstreamName("fallback")), failure_ratio=0.3, window_s=WINDOW_S, min_calls=min_calls, recover_after_s=RECOVER_S
    )
    return ClassHealth({ROUTE: watched})


def _play(health: ClassHealth, moves: list[Call], *, epoch: float = 0.0) -> tuple[list[str | None], float]:
    """Send every prompt where it should go, report what went to the primary; give the diversions and the last time."""
    now, diversions = epoch, []
    for quarters, kind, fails in moves:
        now += quarters / 4
        diversion = health.diverted(ROUTE, KINDS[kind], now=now)
        diversions.append(diversion.prompt_class if diversion is not None else None)
        if diversion is None:
            health.observe(ROUTE, KINDS[kind], failed=fails, now=now)
    return diversions, now


def test_the_drawn_histories_divert_and_come_back() -> None:
    """Without diversions, and ways back out of them, the laws below would hold of nothing."""
    histories = diverted = back = 0

    @settings(derandomize=True, database=None, max_examples=200)
    @given(calls())
    def meet(moves: list[Call]) -> None:
        nonlocal histories, diverted, back
        health = _health()
        diversions, now = _play(health, moves)
        histories += 1
        if any(diversions):
            diverted += 1
            back += not any(status.diverted for status in health.statistics(now=now))

    meet()
    assert diverted > 0.1 * histories
    assert 0 < back < diverted


@given(calls())
def test_a_shifted_clock_changes_no_diversion(moves: list[Call]) -> None:
    """Law: adding a constant to all times gives the same diversions, and so do the same calls again."""
    assert _play(_health(), moves)[0] == _play(_health(), moves, epoch=2.0**20 + 0.25)[0] == _play(_health(), moves)[0]


@given(calls())
def test_a_class_is_blamed_only_with_evidence(moves: list[Call]) -> None:
    """Law: before a first diversion, the primary has failed prompts of that class and had `min_calls` calls of it and of others."""
    diversions, _ = _play(_health(), moves)
    first = next((index for index, name in enumerate(diversions) if name is not None), None)
    if first is None:
        return
    blamed = diversions[first]
    seen = [(blamed in classes_of(KINDS[kind]), fails) for _, kind, fails in moves[:first]]
    assert MIN_CALLS <= sum(of_class for of_class, _ in seen)
    assert MIN_CALLS <= sum(not of_class for of_class, _ in seen)
    assert any(of_class and fails for of_class, fails in seen)


@given(calls())
def test_fewer_calls_than_needed_divert_nothing(moves: list[Call]) -> None:
    """Law: as many calls as there are, with a minimum above their number, leave every prompt on its way."""
    assert set(_play(_health(min_calls=len(moves) + 1), moves)[0]) <= {None}


@given(calls())
def test_a_route_that_fails_as_a_whole_is_not_mistaken(moves: list[Call]) -> None:
    """Law: when every call fails, or none does, nothing is diverted."""
    for outcome in (True, False):
        assert set(_play(_health(), [(quarters, kind, outcome) for quarters, kind, _ in moves])[0]) <= {None}


@given(calls())
def test_every_diversion_ends_when_the_primary_is_well_again(moves: list[Call]) -> None:
    """Law: whatever happened, once the primary answers, each kind of prompt is back after at most one try per class."""
    health = _health()
    now = max(_play(health, moves)[1], 0.0) + 400.0  # later than any moment of the moves, which may go back
    for _ in range(3):
        now += RECOVER_S
        for features in KINDS:
            if health.diverted(ROUTE, features, now=now) is None:
                health.observe(ROUTE, features, failed=False, now=now)
    assert [health.diverted(ROUTE, features, now=now) for features in KINDS] == [None] * len(KINDS)
    assert not any(status.diverted for status in health.statistics(now=now))


@given(calls())
def test_a_class_is_never_seen_more_often_than_its_route(moves: list[Call]) -> None:
    """Law: a prompt is in one length class only, so the calls of all length classes are the route's, and no other class has more."""
    health = _health(min_calls=1_000)
    _, now = _play(health, moves)
    seen = {status.prompt_class: status for status in health.statistics(now=now)}
    total = sum(status.calls for name, status in seen.items() if name in ("under_1k", "1k_to_8k"))
    assert total <= len(moves)
    assert all(0 <= status.failures <= status.calls <= total for status in seen.values())
