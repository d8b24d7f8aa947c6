"""Make a request cheaper that would need more tokens than one request may: first a shorter answer, then a smaller model.

The estimate is the prompt and the expected answer: the client's cap for every choice, or the usual length where it set none. A budget
never refuses: what does not fit anywhere goes where it would have gone, with the shortest answer.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.features import PromptFeatures
from tidegate.domain.request import ParsedRequest
from tidegate.domain.upstream import Target
from tidegate.policy.metering.estimate import DEFAULT_COMPLETION_TOKENS


class Budget(msgspec.Struct, frozen=True):
    """What one request may need; as in the configuration's `budget`."""

    tokens: int = 5000
    shortest_answer_tokens: int = 256
    smaller: Target | None = None
    smaller_precise: Target | None = None
    """Instead of `smaller` where the prompt has figures or formulas."""


class Fit(msgspec.Struct, frozen=True):
    """The arithmetic of one request against its budget, in tokens."""

    budget_tokens: int
    prompt_tokens: int
    answer_tokens: int
    """Expected of one choice as the client asked."""
    choices: int
    cap: int | None = None
    """The answer's cap that is sent; None: as the client asked."""
    smaller: Target | None = None
    """The smaller model it goes to; None: it stays."""

    @property
    def estimate(self) -> int:
        """As the client asked."""
        return self.prompt_tokens + self.answer_tokens * self.choices

    @property
    def shortened_estimate(self) -> int:
        """With the cap that is sent."""
        return self.prompt_tokens + (self.cap if self.cap is not None else self.answer_tokens) * self.choices

    @property
    def fits(self) -> bool:
        return self.estimate <= self.budget_tokens


def surely_fits(request: ParsedRequest, budget: Budget) -> bool:
    """Tell whether a request fits by the cheap bound on its prompt, so that the prompt need not be read."""
    bound = request.prompt_tokens_bound
    return bound > 0 and bound + (request.max_completion_tokens or DEFAULT_COMPLETION_TOKENS) * request.choices <= budget.tokens


def fit(request: ParsedRequest, prompt: PromptFeatures, budget: Budget) -> Fit:
    """Compare a request with its budget, and say how to make it cheaper if it must be."""
    wanted, choices, tokens = request.max_completion_tokens or DEFAULT_COMPLETION_TOKENS, request.choices, prompt.prompt_tokens
    room = (budget.tokens - tokens) // choices
    if wanted <= room:
        return Fit(budget.tokens, tokens, wanted, choices)
    cap = min(wanted, max(room, budget.shortest_answer_tokens))
    shortened = cap if cap < wanted else None
    if cap <= room:
        return Fit(budget.tokens, tokens, wanted, choices, shortened)
    smaller = budget.smaller
    if prompt.is_precise and budget.smaller_precise is not None:
        smaller = budget.smaller_precise
    return Fit(budget.tokens, tokens, wanted, choices, shortened, smaller)
