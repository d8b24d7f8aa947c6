"""Answers to requests that only want to know: how many tokens a prompt has, and what a request will use and cost. No model is called."""

from __future__ import annotations

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import TenantId
from tidegate.domain.upstream import Route
from tidegate.flow.charges import pictures_of
from tidegate.flow.facts import Policies
from tidegate.policy.metering.coefficients import Expected, TokenEstimate
from tidegate.ports import TokenCount
from tidegate.wire.content_type import content_type_of, wishes_of
from tidegate.wire.count_requests import count_answer
from tidegate.wire.estimate_answer import EstimateAnswer, encode_estimate


def answer_count(
    policies: Policies, operation: Operation, request: ParsedRequest, route: Route, tenant: TenantId, count: TokenCount, *, at: float
) -> bytes:
    """Write the answer to any operation that counts; `at` is in seconds since the epoch, for prices that change with the hour."""
    if operation is not Operation.ESTIMATE:
        return count_answer(operation, count)
    expected = expected_of(request, count.prompt_tokens)
    estimate = policies.coefficients.estimate(tenant, route.pattern, expected)
    cost_micro, currency = _cost(policies, request, route, estimate, at)
    return encode_estimate(
        EstimateAnswer(
            model=request.model,
            content_type=expected.content_type,
            input_tokens=estimate.input_tokens,
            output_tokens=estimate.output_tokens,
            overhead_tokens=estimate.overhead_tokens,
            alpha=estimate.alpha,
            beta=estimate.beta,
            gamma=estimate.gamma,
            total_tokens=estimate.total_tokens,
            learned_from=estimate.learned_from,
            tokenizer=count.tokenizer,
            exact=count.exact,
            cost_micro=cost_micro,
            currency=currency,
        )
    )


def expected_of(request: ParsedRequest, prompt_tokens: int) -> Expected:
    """Put together what the total of a chat request depends on."""
    return Expected(content_type_of(request), wishes_of(request), prompt_tokens, request.max_completion_tokens, request.choices)


def _cost(policies: Policies, request: ParsedRequest, route: Route, estimate: TokenEstimate, at: float) -> tuple[int | None, str]:
    """Price what was estimated at the route's first target; the overhead counts as input. None where that has no price."""
    target, pricing = route.targets[0], policies.pricing
    model = request.model if target.model is None else target.model
    if pricing is None or pricing.price_of(target.upstream, model) is None:
        return None, ""
    tokens, images = estimate.weighted_input + estimate.weighted_overhead, pictures_of(pricing, request)
    cost = pricing.cost_micro(target.upstream, model, input_tokens=tokens, output_tokens=estimate.weighted_output, at=at, images=images)
    return cost, pricing.book.currency
