"""The arithmetic of an estimate, its defaults, and what is kept of what was learned."""

from __future__ import annotations

import pytest

from tidegate.domain.features import AnswerWishes, ContentType
from tidegate.domain.units import TenantId
from tidegate.policy.metering import coefficients
from tidegate.policy.metering.coefficients import Coefficients, Expected, Manner, Ratio, default_gamma, manner_of

TENANT = TenantId("acme")


def test_the_worked_example() -> None:
    """1,280 tokens of HTML and an answer of 300 in JSON make 2,602: 1,818 and 315 and 469."""
    expected = Expected(ContentType.HTML, AnswerWishes(json=True), 1280, 300)
    estimate = Coefficients().estimate(TENANT, "qwen*", expected)
    assert (estimate.weighted_input, estimate.weighted_output, estimate.weighted_overhead) == (1818, 315, 469)
    assert (estimate.overhead_tokens, estimate.total_tokens, estimate.learned_from) == (2133, 2602, 0)


@pytest.mark.parametrize(
    ("temperature", "manner"),
    [(None, Manner.DIRECTED), (0.3, Manner.DIRECTED), (0.7, Manner.FREE), (0.8, Manner.RANDOM), (1.5, Manner.RANDOM)],
)
def test_the_temperature_tells_how_freely_is_written(temperature: float | None, manner: Manner) -> None:
    """Nothing asked for, or little, is directed; 0.8 and more is random."""
    assert manner_of(AnswerWishes(temperature=temperature)) == manner


def test_of_several_overheads_the_largest_counts() -> None:
    """JSON before tools before a stream; a plain request has none."""
    assert default_gamma(AnswerWishes(json=True, tools=True, stream=True)) == 0.22
    assert default_gamma(AnswerWishes(tools=True, stream=True)) == 0.15
    assert default_gamma(AnswerWishes(stream=True)) == 0.08
    assert default_gamma(AnswerWishes()) == 0.0


@pytest.mark.parametrize(
    ("kind", "alpha"),
    [(ContentType.PLAIN, 1.0), (ContentType.CODE, 1.0), (ContentType.JSON, 1.0), (ContentType.HTML, 1.42), (ContentType.SCAN, 2.2)],
)
def test_defaults_by_content_type(kind: ContentType, alpha: float) -> None:
    """Markup and noise cost more than the text they carry."""
    assert Coefficients().estimate(TENANT, "r", Expected(kind, AnswerWishes(), 10, None)).alpha == alpha


def test_without_a_cap_a_usual_length_is_expected_for_every_choice() -> None:
    """Choices multiply what one is expected to take."""
    assert Expected(ContentType.PLAIN, AnswerWishes(), 10, None, choices=2).output_tokens == 2048
    assert Expected(ContentType.PLAIN, AnswerWishes(), 10, 7, choices=3).output_tokens == 21


def test_what_is_learned_stays_with_its_tenant_route_and_kind() -> None:
    """One tenant's HTML on one route changes nothing for anybody else; with learning, gamma fades."""
    learned = Coefficients()
    html = Expected(ContentType.HTML, AnswerWishes(json=True), 500, 300)
    for _ in range(40):
        learned.observe(TENANT, "r", html, prompt_tokens=500, completion_tokens=150)
    fitted = learned.estimate(TENANT, "r", html)
    assert fitted.alpha == pytest.approx(1.0, abs=0.02)
    assert fitted.beta == pytest.approx(0.5, rel=0.05)
    assert fitted.gamma < 0.022
    assert fitted.learned_from == 40
    default = Coefficients().estimate(TENANT, "r", html)
    assert learned.estimate(TenantId("other"), "r", html) == default
    assert learned.estimate(TENANT, "s", html) == default
    uncapped = learned.estimate(TENANT, "r", Expected(ContentType.HTML, AnswerWishes(json=True), 500, None))
    assert (uncapped.alpha, uncapped.beta) == (fitted.alpha, 1.05)


def test_nothing_expected_teaches_nothing() -> None:
    """An empty prompt leaves the coefficient as it is."""
    ratio = Ratio(1.42)
    ratio.observe(0, 100)
    assert (ratio.value, ratio.observed) == (1.42, 0)


def test_much_is_learned_at_first_and_little_then() -> None:
    """Two a second until there are 32 of a tenant's route, then one in four seconds."""
    learned = Coefficients()
    due = [learned.is_due(TENANT, "r", now=100.0 + tick / 2) for tick in range(32 + 80)]
    assert (all(due[:32]), sum(due[32:])) == (True, 10)
    assert [True, False, True] == [learned.is_due(TENANT, "s", now=now) for now in (200.0, 200.49, 200.51)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bounds the oldest go: ratios by their last observation, sources by when they were last asked for."""
    monkeypatch.setattr(coefficients, "MAX_COEFFICIENTS", 4)
    monkeypatch.setattr(coefficients, "MAX_SOURCES", 2)
    learned = Coefficients()
    expected = Expected(ContentType.PLAIN, AnswerWishes(), 500, 300)
    for tenant in "abcabc":
        learned.observe(TenantId(tenant), "r", expected, prompt_tokens=600, completion_tokens=300)
        learned.is_due(TenantId(tenant), "r", now=0.0)
    assert len(learned) == 4
    assert learned.estimate(TenantId("a"), "r", expected).learned_from == 0
    assert learned.estimate(TenantId("c"), "r", expected).learned_from > 0
    assert repr(learned) == "Coefficients(4 ratios, 2 sources)"
    assert repr(Ratio(1.5)) == "Ratio(1.500, observed=0)"


def test_a_busy_route_is_not_forgotten_for_quiet_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose requests come all the time keeps its place, and is not learned from twice as often because others come and go."""
    monkeypatch.setattr(coefficients, "MAX_SOURCES", 2)
    learned = Coefficients()
    assert learned.is_due(TENANT, "busy", now=0.0)
    for number in range(8):
        learned.is_due(TENANT, f"quiet-{number}", now=0.1)
        assert not learned.is_due(TENANT, "busy", now=0.1)
