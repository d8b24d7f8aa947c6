"""What a request may cost before it runs, and what it did cost: every attempt that produced something, at the price of whoever produced it.

The instant that decides about cheap hours is the request's own, so that what is held and what is charged go by the same prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from tidegate.domain.demand import Demand
from tidegate.domain.money import UnbilledColor
from tidegate.domain.record import AttemptRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.upstream import Target
from tidegate.domain.usage import Usage
from tidegate.policy.billing.pricing import Pricing
from tidegate.wire.prompt_bound import pictures_in


class Charges(msgspec.Struct, frozen=True):
    """What a request cost. `attempts` are its attempts, each with its part."""

    amount_micro: int = 0
    version: str = ""
    attempts: tuple[AttemptRecord, ...] = ()


def with_cost(demand: Demand, pricing: Pricing | None, request: ParsedRequest, target: Target, *, at: float) -> Demand:
    """Add the most that a demand can cost at a target. `at`, here and below, is in seconds since the epoch."""
    if pricing is None:
        return demand
    cost = pricing.cost_micro(
        target.upstream,
        request.model if target.model is None else target.model,
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        at=at,
        images=pictures_of(pricing, request),
    )
    return Demand(demand.input_tokens, demand.output_tokens, cost)


def charges_of(
    pricing: Pricing | None, request: ParsedRequest | None, attempts: Sequence[AttemptRecord], usage: Usage, *, at: float
) -> Charges:
    """Charge a request's attempts: the last one for `usage`, those before it for what their upstreams reported."""
    if pricing is None or request is None or not attempts:
        return Charges(attempts=tuple(attempts))
    used = [*(attempt.usage for attempt in attempts[:-1]), usage if usage.total_tokens else attempts[-1].usage]
    images = pictures_of(pricing, request)
    charged: list[AttemptRecord] = []
    version, amount = "", 0
    for attempt, tokens in zip(attempts, used, strict=True):
        if not tokens.total_tokens:
            charged.append(attempt)
            continue
        cost = pricing.settled(attempt.upstream, attempt.model, tokens, at=at, images=images)
        version, amount = cost.version or version, amount + cost.amount_micro
        charged.append(replace(attempt, cost_micro=cost.amount_micro))
    return Charges(amount, version, tuple(charged))


def is_unbilled(grants: Sequence[UnbilledColor], color: str, tenant: str) -> bool:
    """Tell whether a tenant's traffic of a colour goes unpaid: only where it was granted, since clients colour what they send."""
    return any(grant.color == color and fnmatchcase(tenant, grant.tenant) for grant in grants)


def pictures_of(pricing: Pricing, request: ParsedRequest) -> int:
    """Count the pictures of a conversation, where any price is for them."""
    has_pictures = request.operation is Operation.CHAT or request.operation is Operation.ESTIMATE
    return pictures_in(request.body) if pricing.prices_images and has_pictures else 0
