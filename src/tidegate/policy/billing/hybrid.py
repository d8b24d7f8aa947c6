"""Billing by resources: a free quota of tokens each month, and beyond it GPU memory over time and traffic.

The bill depends on nothing but the sums of the month: of everything used, the share that the tokens beyond the quota are of all tokens is
charged. So neither the order of the calls nor how they are cut into records changes it.

    beyond = (tokens - free tokens) / tokens, at least 0
    memory = tokens held × bytes per token × time held, in gigabyte-hours;   charged = beyond × memory × rate
    traffic = bytes of requests and answers, in gigabytes;                   charged = beyond × traffic × rate

Each of the two is rounded once, to the nearest millionth, a half upwards. A gigabyte is 10^9 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tidegate.domain.money import WHOLE_PPM, HybridPlan, divided

GIGABYTE: Final = 10**9
_HOUR_MS: Final = 3_600_000


class ResourceUse(msgspec.Struct, frozen=True, gc=False):
    """What one tenant used in one month."""

    tokens: int = 0
    token_ms: int = 0
    """Over all calls, the call's tokens times the milliseconds that it ran."""
    traffic_bytes: int = 0

    def plus(self, other: ResourceUse) -> ResourceUse:
        return ResourceUse(self.tokens + other.tokens, self.token_ms + other.token_ms, self.traffic_bytes + other.traffic_bytes)


class HybridBill(msgspec.Struct, frozen=True):
    """What a month comes to. Quantities are millionths of a gigabyte-hour and of a gigabyte: the charged part only."""

    free_tokens: int
    beyond_tokens: int
    memory_hours_ppm: int
    memory_micro: int
    traffic_gb_ppm: int
    traffic_micro: int

    @property
    def amount_micro(self) -> int:
        return self.memory_micro + self.traffic_micro


def plan_of(plans: Sequence[HybridPlan], tenant: str) -> HybridPlan | None:
    """Find a tenant's terms: the first that match; None for a tenant who pays by the token."""
    return next((plan for plan in plans if fnmatchcase(tenant, plan.tenant)), None)


def hybrid_bill(plan: HybridPlan, use: ResourceUse) -> HybridBill:
    """Bill one tenant's month."""
    beyond = max(0, use.tokens - plan.free_tokens)
    if beyond == 0:
        return HybridBill(use.tokens, 0, 0, 0, 0, 0)
    memory, memory_unit = beyond * use.token_ms * plan.memory_bytes_per_token, use.tokens * GIGABYTE * _HOUR_MS
    traffic, traffic_unit = beyond * use.traffic_bytes, use.tokens * GIGABYTE
    return HybridBill(
        free_tokens=plan.free_tokens,
        beyond_tokens=beyond,
        memory_hours_ppm=divided(memory * WHOLE_PPM, memory_unit),
        memory_micro=divided(memory * plan.memory_hour_micro, memory_unit),
        traffic_gb_ppm=divided(traffic * WHOLE_PPM, traffic_unit),
        traffic_micro=divided(traffic * plan.traffic_gb_micro, traffic_unit),
    )
