"""The budget of one request: what fits, what is shortened, what goes to a smaller model."""

from __future__ import annotations

import pytest

from tidegate.domain.features import PromptFeatures, Trait
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName, UpstreamName
from tidegate.domain.upstream import Target
from tidegate.policy.metering.estimate import DEFAULT_COMPLETION_TOKENS
from tidegate.policy.routing.budget import Budget, Fit, fit, surely_fits

Q4, Q8 = (Target(UpstreamName("cluster"), ModelName(name)) for name in ("q4_k_m", "q8_0"))
BUDGET = Budget(tokens=5_000, shortest_answer_tokens=256, smaller=Q4, smaller_precise=Q8)


def request(cap: int | None, choices: int = 1, bound: int = 0) -> ParsedRequest:
    return ParsedRequest(Operation.CHAT, ModelName("m"), b"{}", max_completion_tokens=cap, choices=choices, prompt_tokens_bound=bound)


def fitted(prompt_tokens: int, cap: int | None, budget: Budget = BUDGET, *, choices: int = 1, traits: frozenset[str] = frozenset()) -> Fit:
    return fit(request(cap, choices), PromptFeatures(prompt_tokens, traits), budget)


@pytest.mark.parametrize(
    ("prompt_tokens", "cap", "choices", "expected"),
    [
        (4_000, 1_000, 1, (None, None)),
        (4_000, 1_001, 1, (1_000, None)),
        (4_744, 9_000, 1, (256, None)),
        (4_745, 9_000, 1, (256, Q4)),
        (9_000, 9_000, 1, (256, Q4)),
        (9_000, 100, 1, (None, Q4)),
        (4_950, 100, 1, (None, Q4)),
        (3_000, 1_000, 3, (666, None)),
        (3_977, None, 1, (1_023, None)),
        (3_976, None, 1, (None, None)),
    ],
)
def test_first_the_answer_is_shortened_then_the_model_is_smaller(
    prompt_tokens: int, cap: int | None, choices: int, expected: tuple[int | None, Target | None]
) -> None:
    """The answer gets what the prompt leaves, but not less than the shortest; what the client asked for is never raised."""
    result = fitted(prompt_tokens, cap, choices=choices)
    assert expected == (result.cap, result.smaller)
    assert result.cap is None or result.cap < (cap or DEFAULT_COMPLETION_TOKENS)


@pytest.mark.parametrize("trait", [Trait.FIGURES, Trait.FORMULAS])
def test_prompts_with_figures_go_to_the_precise_model(trait: Trait) -> None:
    """Coarse quantisation gets numbers wrong; without a precise model the smaller one has to do."""
    traits = frozenset({trait.value})
    assert Q8 == fitted(9_000, 500, traits=traits).smaller
    assert Q4 == fitted(9_000, 500, Budget(5_000, 256, Q4), traits=traits).smaller
    assert Q4 == fitted(9_000, 500, traits=frozenset({"code"})).smaller
    assert fitted(9_000, 500, Budget(5_000, 256, None, Q8)).smaller is None


def test_the_arithmetic_is_told() -> None:
    """Before and after shortening."""
    result = fitted(4_000, 1_500)
    assert (5_500, 5_000, False) == (result.estimate, result.shortened_estimate, result.fits)
    result = fitted(1_000, 500, choices=2)
    assert (2_000, 2_000, True) == (result.estimate, result.shortened_estimate, result.fits)


def test_a_small_request_fits_by_its_bound() -> None:
    """Its prompt need not be read; an unknown bound proves nothing."""
    assert surely_fits(request(1_000, bound=4_000), BUDGET)
    assert not surely_fits(request(1_000, bound=4_001), BUDGET)
    assert not surely_fits(request(1_000, choices=2, bound=4_000), BUDGET)
    assert not surely_fits(request(1_000), BUDGET)
    assert surely_fits(request(None, bound=5_000 - DEFAULT_COMPLETION_TOKENS), BUDGET)
