"""What tenants owe for a month."""

from __future__ import annotations

import csv
import io
import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidegate.billing.calls import BilledCall
from tidegate.billing.invoice import Invoice, InvoiceLine, invoices, invoices_csv, invoices_json, invoices_text
from tidegate.domain.books import Dimensions
from tidegate.domain.money import HybridPlan
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.policy.billing.hybrid import ResourceUse

PLAN = HybridPlan("acme", 100, memory_hour_micro=20_000, traffic_gb_micro=100_000, memory_bytes_per_token=10**6)


def call(tenant: str, cost: int, *, model: str = "plus", version: str = "1") -> BilledCall:
    return BilledCall(0.0, TenantId(tenant), cost, Evidence.REPORTED, version, Usage(10, 5, 4), Dimensions(model=model))


def made_of(calls: list[BilledCall], resources: dict[str, ResourceUse] | None = None) -> list[Invoice]:
    return invoices(calls, month="2026-11", currency="CNY", plans=(PLAN,), resources=resources or {})


CALLS = [call("b", 7), call("b", 8), call("b", 1, version="2"), call("b", 2, model="max"), call("c", 5)]


def test_there_is_a_line_for_every_model_and_price_version() -> None:
    """And an invoice for every tenant."""
    first, second = made_of(CALLS)
    assert ("b", "c") == (first.tenant, second.tenant)
    assert (
        InvoiceLine("tokens", 15, "tokens", 2, "max", "1", 1, Usage(10, 5, 4)),
        InvoiceLine("tokens", 30, "tokens", 15, "plus", "1", 2, Usage(20, 10, 8)),
        InvoiceLine("tokens", 15, "tokens", 1, "plus", "2", 1, Usage(10, 5, 4)),
    ) == first.lines
    assert 18 == first.total_micro


def test_a_tenant_with_hybrid_terms_pays_for_what_is_beyond_its_quota() -> None:
    """Half of 200 tokens was beyond: half of two gigabyte-hours and of four gigabytes is charged, and no price per token."""
    used = ResourceUse(200, 2 * 3_600_000 * 1000, 4 * 10**9)
    [invoice] = made_of([call("acme", 99), call("acme", 99)], {"acme": used})
    assert (
        InvoiceLine("tokens", 30, "tokens", 0, "plus", "1", 2, Usage(20, 10, 8)),
        InvoiceLine("free_tokens", 100, "tokens", 0),
        InvoiceLine("gpu_memory", 1.0, "GB hours", 20_000),
        InvoiceLine("traffic", 2.0, "GB", 200_000),
    ) == invoice.lines
    assert 220_000 == invoice.total_micro


def test_a_quota_that_was_not_used_up_costs_nothing() -> None:
    """As where no record says what was used."""
    [invoice] = made_of([call("acme", 99)])
    assert 0 == invoice.total_micro


def test_an_invoice_is_text_csv_and_json() -> None:
    """The same amounts, exactly."""
    made = made_of(CALLS)
    expected = (
        "Invoice 2026-11, tenant c\n"
        "item    model  price version  calls  quantity    unit  amount (CNY)\n"
        "tokens  plus   1                  1        15  tokens      0.000005\n"
        "total                                              0.000005\n"
    )
    text = invoices_text(made)
    assert expected.splitlines()[:3] == text.split("\n\n")[1].splitlines()[:3]
    assert text.splitlines()[-1].split() == ["total", "0.000005"]
    rows = list(csv.DictReader(io.StringIO(invoices_csv(made))))
    assert ["0.000002", "0.000015", "0.000001", "0.000005"] == [row["amount"] for row in rows]
    assert ("b", "2026-11", "10", "15", "CNY") == tuple(
        rows[0][name] for name in ("tenant", "month", "prompt_tokens", "quantity", "currency")
    )
    shown = json.loads(msgspec.json.encode(invoices_json(made)))
    assert [("b", 18, "0.000018"), ("c", 5, "0.000005")] == [
        (invoice["tenant"], invoice["total_micro"], invoice["total"]) for invoice in shown["invoices"]
    ]


def test_without_calls_there_are_no_invoices() -> None:
    """Nobody owes anything."""
    assert [] == made_of([])
    assert "" == invoices_text([])


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from("xy"), st.integers(0, 10**12)), max_size=30))
def test_law_the_lines_make_the_total_and_the_totals_make_the_cost(parts: list[tuple[str, str, int]]) -> None:
    """Of tenants who pay by the token."""
    made = made_of([call(tenant, cost, model=model) for tenant, model, cost in parts])
    assert sum(cost for _, _, cost in parts) == sum(invoice.total_micro for invoice in made)
    assert all(sum(line.amount_micro for line in invoice.lines) == invoice.total_micro for invoice in made)
