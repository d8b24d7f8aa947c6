"""What each tenant owes for a month: a line for every model and price version, or the terms of billing by resources; and their sum.

The month is that of UTC, and a call belongs to the month in which its request ended. A tenant with hybrid terms has its lines by model
without an amount, and after them what the resources beyond its quota cost. The total of an invoice is the sum of its lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidegate.billing.calls import BilledCall
from tidegate.billing.layout import csv_text, plain, table
from tidegate.domain.money import WHOLE_PPM, HybridPlan, money_text
from tidegate.domain.usage import Usage
from tidegate.policy.billing.hybrid import ResourceUse, hybrid_bill, plan_of


class InvoiceLine(msgspec.Struct, frozen=True):
    """One line. `quantity` counts in `unit`; of tokens the parts are in `usage`."""

    item: str
    """`tokens`, `free_tokens`, `gpu_memory`, `traffic`."""
    quantity: float
    unit: str
    amount_micro: int
    model: str = ""
    price_version: str = ""
    calls: int = 0
    usage: Usage = Usage()


class Invoice(msgspec.Struct, frozen=True):
    """One tenant's month."""

    tenant: str
    month: str
    currency: str
    lines: tuple[InvoiceLine, ...]

    @property
    def total_micro(self) -> int:
        return sum(line.amount_micro for line in self.lines)


class _Sums:
    """Of one tenant's calls at one model and price version."""

    __slots__ = ("amount_micro", "calls", "usage")

    def __init__(self) -> None:
        self.amount_micro = 0
        self.calls = 0
        self.usage = [0] * len(Usage.__struct_fields__)

    def add(self, call: BilledCall) -> None:
        self.amount_micro += call.amount_micro
        self.calls += 1
        self.usage = [so_far + tokens for so_far, tokens in zip(self.usage, msgspec.structs.astuple(call.usage), strict=True)]


def invoices(
    calls: Iterable[BilledCall],
    *,
    month: str,
    currency: str,
    plans: Sequence[HybridPlan],
    resources: Mapping[str, ResourceUse],
) -> list[Invoice]:
    """Make the invoices of a month's calls, by tenant. `resources`: what tenants with hybrid terms used."""
    sums: dict[str, dict[tuple[str, str], _Sums]] = {}
    for call in calls:
        key = (call.dimensions.model, call.price_version)
        sums.setdefault(call.tenant, {}).setdefault(key, _Sums()).add(call)
    made = []
    for tenant, parts in sorted(sums.items()):
        plan = plan_of(plans, tenant)
        lines = [_line(key, part, in_plan=plan is not None) for key, part in sorted(parts.items())]
        if plan is not None:
            lines += _hybrid_lines(plan, resources.get(tenant, ResourceUse()))
        made.append(Invoice(tenant, month, currency, tuple(lines)))
    return made


def _line(key: tuple[str, str], part: _Sums, *, in_plan: bool) -> InvoiceLine:
    usage = Usage(*part.usage)
    model, version = key
    return InvoiceLine("tokens", usage.total_tokens, "tokens", 0 if in_plan else part.amount_micro, model, version, part.calls, usage)


def _hybrid_lines(plan: HybridPlan, use: ResourceUse) -> list[InvoiceLine]:
    bill = hybrid_bill(plan, use)
    return [
        InvoiceLine("free_tokens", bill.free_tokens, "tokens", 0),
        InvoiceLine("gpu_memory", bill.memory_hours_ppm / WHOLE_PPM, "GB hours", bill.memory_micro),
        InvoiceLine("traffic", bill.traffic_gb_ppm / WHOLE_PPM, "GB", bill.traffic_micro),
    ]


# ── how it looks ──────────────────────────────────────────────────────────────


def invoices_text(made: Sequence[Invoice]) -> str:
    """Write invoices for people, one after the other."""
    return "\n".join(_invoice_text(invoice) for invoice in made)


def _invoice_text(invoice: Invoice) -> str:
    rows = [("item", "model", "price version", "calls", "quantity", "unit", f"amount ({invoice.currency})")]
    rows += [
        (
            line.item,
            line.model,
            line.price_version,
            f"{line.calls:,}" if line.calls else "",
            f"{line.quantity:,.6f}".rstrip("0").rstrip("."),
            line.unit,
            money_text(line.amount_micro),
        )
        for line in invoice.lines
    ]
    rows.append(("total", "", "", "", "", "", money_text(invoice.total_micro)))
    return f"Invoice {invoice.month}, tenant {plain(invoice.tenant) or '-'}\n{table(rows, left=3)}"


def invoices_csv(made: Sequence[Invoice]) -> str:
    """Write every line of every invoice; totals are for whoever reads the file to make."""
    names = Usage.__struct_fields__
    heading = ("tenant", "month", "item", "model", "price_version", "calls", *names, "quantity", "unit", "amount", "currency")
    rows = (
        (
            *(invoice.tenant, invoice.month, line.item, line.model, line.price_version, line.calls),
            *msgspec.structs.astuple(line.usage),
            *(f"{line.quantity:.6f}".rstrip("0").rstrip("."), line.unit, money_text(line.amount_micro), invoice.currency),
        )
        for invoice in made
        for line in invoice.lines
    )
    return csv_text((heading, *rows))


def invoices_json(made: Sequence[Invoice]) -> dict[str, object]:
    """Give invoices as JSON has them."""
    return {
        "invoices": [
            {**msgspec.to_builtins(invoice), "total_micro": invoice.total_micro, "total": money_text(invoice.total_micro)}
            for invoice in made
        ]
    }
