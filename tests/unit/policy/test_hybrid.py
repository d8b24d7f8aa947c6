"""Billing by resources."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.money import HybridPlan
from tidegate.policy.billing.hybrid import HybridBill, ResourceUse, hybrid_bill, plan_of

PLAN = HybridPlan("acme*", 1_000_000, memory_hour_micro=20_000, traffic_gb_micro=100_000, memory_bytes_per_token=131_072)
AMOUNTS = st.integers(0, 10**15)
USES = st.builds(ResourceUse, AMOUNTS, AMOUNTS, AMOUNTS)


def test_a_month_within_the_quota_is_free() -> None:
    """To the last token."""
    assert HybridBill(1_000_000, 0, 0, 0, 0, 0) == hybrid_bill(PLAN, ResourceUse(1_000_000, 10**15, 10**15))


def test_the_share_beyond_the_quota_pays_for_memory_and_traffic() -> None:
    """Four million tokens, one of them free: three quarters of 4,000 s × 4,000,000 tokens of 128 KiB, and of 8 GB."""
    bill = hybrid_bill(PLAN, ResourceUse(4_000_000, 4_000_000 * 4_000_000, 8 * 10**9))
    assert HybridBill(1_000_000, 3_000_000, 436_906_667, 8_738_133, 6_000_000, 600_000) == bill
    assert 9_338_133 == bill.amount_micro


def test_the_first_terms_that_match_a_tenant_are_its_own() -> None:
    """Others pay by the token."""
    assert PLAN is plan_of((PLAN, HybridPlan("*", 0, 0, 0, 1)), "acme-eu")
    assert None is plan_of((PLAN,), "umbrella")


@given(USES, USES)
def test_law_more_use_never_costs_less(use: ResourceUse, more: ResourceUse) -> None:
    """Whatever of the three grows."""
    assert hybrid_bill(PLAN, use).amount_micro <= hybrid_bill(PLAN, use.plus(more)).amount_micro


@given(st.integers(1, 10**12), AMOUNTS, AMOUNTS)
def test_law_without_a_quota_everything_is_charged(tokens: int, token_ms: int, traffic: int) -> None:
    """Traffic alone, at a millionth per byte, costs its bytes."""
    plan = HybridPlan("*", 0, 0, 10**9, 1)
    assert traffic == hybrid_bill(plan, ResourceUse(tokens, token_ms, traffic)).amount_micro
