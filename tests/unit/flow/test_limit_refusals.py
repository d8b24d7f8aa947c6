"""The words of a limit that refuses: which one, whose it is, and what to do."""

from __future__ import annotations

import pytest

from tidegate.domain.limits import CounterSpec, Meter, Period, Resource
from tidegate.domain.outcome import Outcome
from tidegate.errors import BudgetExceeded, ConcurrencyLimited, LimitUnreachable, RateLimited, TidegateError
from tidegate.flow.outcomes import outcome_of_refusal
from tidegate.flow.refusals import limit_refusal
from tidegate.ports import Denied
from tidegate.wire.headers import refusal_headers

MINUTE = CounterSpec(Meter.SLIDING, 1000)
RATE = CounterSpec(Meter.GCRA, 1000, 1.0, 50)
DAY = CounterSpec(Meter.CALENDAR, 1000)


def denied(
    resource: Resource, *, ceiling: int = 1000, left: int = 10, wanted: int = 99, wait_s: float | None = 41.2, spec: CounterSpec = MINUTE
) -> Denied:
    return Denied("big", resource, ceiling, left, wanted, wait_s, "tenant acme", spec)


def budget(wait_s: float | None, period: Period) -> Denied:
    spec = CounterSpec(Meter.CALENDAR, 2_500_000_000, period=period)
    return denied(Resource.COST, ceiling=2_500_000_000, left=70_000, wanted=1_234_567, wait_s=wait_s, spec=spec)


# what is refused, the class, the words
REFUSALS: list[tuple[TidegateError, type[TidegateError], str]] = [
    (
        limit_refusal(denied(Resource.CONCURRENCY, ceiling=4, spec=CounterSpec(Meter.PLACES, 4))),
        ConcurrencyLimited,
        '4 requests run already, as many as the limit "big" of tenant acme allows. Wait for one to end, or ask for a higher limit.',
    ),
    (
        limit_refusal(denied(Resource.CONCURRENCY, ceiling=1, spec=CounterSpec(Meter.PLACES, 1))),
        ConcurrencyLimited,
        '1 request runs already, as many as the limit "big" of tenant acme allows. Wait for one to end, or ask for a higher limit.',
    ),
    (
        limit_refusal(denied(Resource.REQUESTS, ceiling=1)),
        RateLimited,
        'The 1 request in any 60 s of the limit "big" of tenant acme is used up. Try again in 42 s, or ask for a higher limit.',
    ),
    (
        limit_refusal(denied(Resource.REQUESTS, spec=RATE)),
        RateLimited,
        (
            'The 1000 requests per 1 s (50 at once) of the limit "big" of tenant acme are used up. '
            "Try again in 42 s, or ask for a higher limit."
        ),
    ),
    (
        limit_refusal(denied(Resource.TOKENS)),
        RateLimited,
        (
            'The request needs 99 tokens and the limit "big" of tenant acme is 1000 tokens in any 60 s, of which 10 are left now. '
            "Try again in 42 s, or lower max_tokens or shorten the prompt."
        ),
    ),
    (
        limit_refusal(denied(Resource.TOKENS), capped=False),
        RateLimited,
        (
            'The request needs 99 tokens and the limit "big" of tenant acme is 1000 tokens in any 60 s, of which 10 are left now. '
            "Try again in 42 s, or send less text at once."
        ),
    ),
    (
        limit_refusal(denied(Resource.INPUT_TOKENS, wait_s=None)),
        LimitUnreachable,
        (
            'The request needs 99 input tokens and the limit "big" of tenant acme is 1000 input tokens in any 60 s: it can never fit. '
            "Please shorten the prompt, or ask for a higher limit."
        ),
    ),
    (
        limit_refusal(denied(Resource.OUTPUT_TOKENS, wait_s=30_000.0, spec=DAY)),
        RateLimited,
        (
            'The request needs 99 output tokens and the limit "big" of tenant acme is 1000 output tokens per day, of which 10 are '
            "left now. Try again in 9 h, or lower max_tokens."
        ),
    ),
    (
        limit_refusal(budget(40_000.0, Period.DAY)),
        BudgetExceeded,
        (
            'The request may cost 1.234567 and the budget "big" of tenant acme has 0.07 of the 2,500.00 per day left. '
            "It begins anew at midnight UTC, in 12 h; or ask for a higher budget."
        ),
    ),
    (
        limit_refusal(budget(1_000_000.0, Period.MONTH)),
        BudgetExceeded,
        (
            'The request may cost 1.234567 and the budget "big" of tenant acme has 0.07 of the 2,500.00 per month left. '
            "It begins anew on the first of the next month (UTC), in 12 d; or ask for a higher budget."
        ),
    ),
    (
        limit_refusal(budget(4000.0, Period.HOUR)),
        BudgetExceeded,
        (
            'The request may cost 1.234567 and the budget "big" of tenant acme has 0.07 of the 2,500.00 per hour left. '
            "It begins anew in 67 min, for what was spent beyond it; or ask for a higher budget."
        ),
    ),
    (
        limit_refusal(budget(0.05, Period.MONTH)),
        RateLimited,
        'What is left of the budget "big" of tenant acme is not known at this moment. Try again in 1 s.',
    ),
    (
        limit_refusal(budget(None, Period.DAY)),
        BudgetExceeded,
        (
            'The request may cost 1.234567 and the budget "big" of tenant acme has 0.07 of the 2,500.00 per day left: it can never fit. '
            "Please lower max_tokens or shorten the prompt, or ask for a higher budget."
        ),
    ),
    (
        limit_refusal(denied(Resource.TOKENS, spec=CounterSpec(Meter.PLACES, 9))),
        RateLimited,
        (
            'The request needs 99 tokens and the limit "big" of tenant acme is 1000 tokens at once, of which 10 are left now. '
            "Try again in 42 s, or lower max_tokens or shorten the prompt."
        ),
    ),
]


@pytest.mark.parametrize(("error", "kind", "words"), REFUSALS, ids=[str(number) for number in range(len(REFUSALS))])
def test_a_refusal_names_the_rule_its_owner_and_a_way_out(error: TidegateError, kind: type[TidegateError], words: str) -> None:
    """Whoever reads it at night knows which line of the configuration to look at."""
    assert type(error) is kind
    assert words == error.message


def test_only_what_can_be_lowered_is_named_as_the_parameter_at_fault() -> None:
    """`max_tokens` where the answer is part of the demand and has a cap."""
    assert limit_refusal(denied(Resource.TOKENS, wait_s=None)).param == "max_tokens"
    assert limit_refusal(denied(Resource.TOKENS, wait_s=None), capped=False).param is None
    assert limit_refusal(denied(Resource.INPUT_TOKENS, wait_s=None)).param is None


def test_a_budget_is_not_retried_at_once() -> None:
    """Its own outcome, and a wait only where it is within the hour; SDKs are told to leave it."""
    soon, late = limit_refusal(budget(3000.0, Period.HOUR)), limit_refusal(budget(40_000.0, Period.DAY))
    assert (soon.retry_after_s, late.retry_after_s) == (3000.0, None)
    assert Outcome.REJECTED_BUDGET is outcome_of_refusal(soon)
    assert (soon.status, soon.code, soon.type, soon.retryable) == (429, "budget_exceeded", "insufficient_quota", False)
    assert (b"retry-after", b"3000") in refusal_headers(soon)
    assert [(b"x-should-retry", b"false")] == [field for field in refusal_headers(late) if field[0] != b"content-type"]
