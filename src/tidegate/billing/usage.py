"""Who used how much, and what share of it: usage grouped by names, the largest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tidegate.billing.calls import BilledCall
from tidegate.billing.layout import csv_text, ratio_text, table
from tidegate.domain.books import UsageRow
from tidegate.domain.money import money_text
from tidegate.domain.usage import Evidence, Usage

GROUPS: dict[str, Callable[[BilledCall], str]] = {
    "tenant": lambda call: call.tenant,
    "key": lambda call: call.dimensions.key,
    "user": lambda call: call.dimensions.user,
    "feature": lambda call: call.dimensions.feature,
    "model": lambda call: call.dimensions.model,
    "route": lambda call: call.dimensions.route,
    "upstream": lambda call: call.dimensions.upstream,
    "price_version": lambda call: call.price_version,
    "evidence": lambda call: call.evidence,
}
"""By what usage can be grouped; the books know the same names."""
_FIGURES = 3 + len(Usage.__struct_fields__)
"""Calls, amount, what of it was reported, and the tokens."""
MAX_GROUPS = 100_000
"""Groups kept apart while calls are read, some 50 MB of them; what comes beyond counts as one more, named `other`."""


class UsageReport(msgspec.Struct, frozen=True):
    """The largest groups, the rest in one row, and all together."""

    by: tuple[str, ...]
    currency: str
    rows: tuple[UsageRow, ...]
    groups: int
    """In all."""
    rest: UsageRow | None
    total: UsageRow
    since: str = ""
    until: str = ""

    def share(self, row: UsageRow) -> float:
        """Give a row's share of the cost; of the tokens, where nothing cost anything."""
        whole, part = self.total.amount_micro, row.amount_micro
        if not whole:
            whole, part = self.total.usage.total_tokens, row.usage.total_tokens
        return part / whole if whole else 0.0


def usage_rows(calls: Iterable[BilledCall], by: Sequence[str]) -> list[UsageRow]:
    """Sum calls up, grouped by names of `GROUPS`."""
    getters = [GROUPS[name] for name in by]
    other = ("other",) * len(by)
    sums: dict[tuple[str, ...], list[int]] = {}
    for call in calls:
        group = tuple(str(get(call)) for get in getters)
        row = sums.get(group)
        if row is None:
            row = sums.setdefault(group if len(sums) < MAX_GROUPS else other, [0] * _FIGURES)
        usage = call.usage
        reported = call.amount_micro if call.evidence is Evidence.REPORTED else 0
        for index, amount in enumerate((1, call.amount_micro, reported, *msgspec.structs.astuple(usage))):
            row[index] += amount
    return [_row(group, figures) for group, figures in sums.items()]


def usage_report(rows: Iterable[UsageRow], by: Sequence[str], *, top: int, currency: str, since: str = "", until: str = "") -> UsageReport:
    """Rank groups by cost, then by tokens, and keep the first `top` apart."""
    ranked = sorted(rows, key=lambda row: (-row.amount_micro, -row.usage.total_tokens, row.group))
    kept, others = ranked[:top], ranked[top:]
    rest = _sum(others, f"{len(others)} more") if others else None
    return UsageReport(tuple(by), currency, tuple(kept), len(ranked), rest, _sum(ranked, "total"), since, until)


def _sum(rows: Sequence[UsageRow], name: str) -> UsageRow:
    total = [0] * _FIGURES
    for row in rows:
        figures = (row.calls, row.amount_micro, row.reported_micro, *msgspec.structs.astuple(row.usage))
        total = [so_far + figure for so_far, figure in zip(total, figures, strict=True)]
    return _row((name,), total)


def _row(group: tuple[str, ...], figures: Sequence[int]) -> UsageRow:
    calls, amount, reported, *tokens = figures
    return UsageRow(group, calls, amount, Usage(*tokens), reported)


# ── how it looks ──────────────────────────────────────────────────────────────


def report_table(report: UsageReport) -> str:
    """Write a report for people."""
    width = len(report.by)
    heading = (*report.by, "calls", "prompt", "cached", "completion", f"cost ({report.currency})", "share")
    rows = [heading, *((*(name or "-" for name in row.group), *_figures(report, row)) for row in report.rows)]
    last = [row for row in (report.rest, report.total) if row is not None]
    rows += [(*row.group, *("",) * (width - 1), *_figures(report, row)) for row in last]
    return f"{report.since} to {report.until} (UTC)\n{table(rows, left=width)}"


def _figures(report: UsageReport, row: UsageRow) -> tuple[str, ...]:
    usage = row.usage
    counts = (row.calls, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return (*(f"{count:,}" for count in counts), money_text(row.amount_micro), ratio_text(report.share(row)))


def report_csv(report: UsageReport) -> str:
    """Write all kept groups; totals are for whoever reads the file to make."""
    names = Usage.__struct_fields__
    heading = (*report.by, "calls", *names, "cost", "currency", "share")
    rows = (
        (
            *row.group,
            row.calls,
            *msgspec.structs.astuple(row.usage),
            money_text(row.amount_micro),
            report.currency,
            f"{report.share(row):.6f}",
        )
        for row in report.rows
    )
    return csv_text((heading, *rows))


def report_json(report: UsageReport) -> dict[str, object]:
    """Give a report as JSON has it: amounts in millionths, and as they are written."""
    return {
        "since": report.since,
        "until": report.until,
        "currency": report.currency,
        "by": report.by,
        "groups": report.groups,
        "rows": [{**dict(zip(report.by, row.group, strict=True)), **_row_json(report, row)} for row in report.rows],
        "rest": None if report.rest is None else _row_json(report, report.rest),
        "total": _row_json(report, report.total),
    }


def _row_json(report: UsageReport, row: UsageRow) -> dict[str, object]:
    return {
        "calls": row.calls,
        **msgspec.structs.asdict(row.usage),
        "total_tokens": row.usage.total_tokens,
        "cost_micro": row.amount_micro,
        "cost": money_text(row.amount_micro),
        "reported_micro": row.reported_micro,
        "share": round(report.share(row), 6),
    }
