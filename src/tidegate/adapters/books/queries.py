"""The questions asked of the books, in SQL that SQLite and PostgreSQL both read, and what their rows mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.adapters.books.schema import Cell
from tidegate.domain.books import INCARNATION_CHARS, Balance, Dimensions, OperationId, SettledCall, UsageRow
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage

Row = Sequence[Cell]

STATE_COLUMNS: Final = "operation_id, tenant, kind, attempt, holds_micro, expires_at"

BALANCES: Final = """
SELECT tenant, CAST(-sum(credit_micro) AS BIGINT), CAST(sum(balance_micro) AS BIGINT), CAST(sum(holds_micro) AS BIGINT),
    CAST(sum(spent_micro) AS BIGINT)
FROM tidegate_postings GROUP BY tenant ORDER BY tenant
"""

EXPIRED: Final = """
SELECT expires_at, posting_id, operation_id, tenant FROM tidegate_postings
WHERE kind = 'hold' AND (expires_at, posting_id) > ($1, $2) AND expires_at <= $3
ORDER BY expires_at, posting_id LIMIT $4
"""
"""Holds past their time, open or not, from a place in the index on; so that a sweep looks at each once."""

SETTLED: Final = """
SELECT posting_id, operation_id, attempt, tenant, spent_micro, at, evidence, price_version, prompt_tokens, completion_tokens, cached_tokens,
    reasoning_tokens, cache_write_tokens, key_id, user_id, feature, model, route, upstream, upstream_request_id
FROM tidegate_postings
WHERE kind = 'settle' AND at >= $1 AND at < $2 AND ($3 = '' OR tenant = $3) AND ($4 = '' OR upstream = $4) AND posting_id > $5
ORDER BY posting_id LIMIT $6
"""

GROUPS: Final = {
    "tenant": "tenant",
    "key": "key_id",
    "user": "user_id",
    "feature": "feature",
    "model": "model",
    "route": "route",
    "upstream": "upstream",
    "price_version": "price_version",
    "evidence": "evidence",
    "worker": f"substr(operation_id, 1, {INCARNATION_CHARS})",
}
"""What usage can be grouped by, and the column that has it; of a worker, the name of its run."""

POSTINGS: Final = "SELECT count(*) FROM tidegate_postings"
OPEN_HOLDS: Final = """
SELECT count(*) FROM (SELECT 1 FROM tidegate_postings GROUP BY operation_id, tenant HAVING sum(holds_micro) <> 0) AS held
"""

UNEVEN: Final = """
SELECT operation_id FROM tidegate_postings WHERE credit_micro + balance_micro + holds_micro + spent_micro <> 0 LIMIT 20
"""
TWICE: Final = """
SELECT operation_id FROM tidegate_postings GROUP BY operation_id, attempt, kind, tenant HAVING count(*) > 1 LIMIT 20
"""
WRONGLY_HELD: Final = """
SELECT operation_id FROM tidegate_postings GROUP BY operation_id, tenant
HAVING sum(holds_micro) < 0 OR sum(holds_micro) > 0 AND sum(CASE WHEN kind IN ('settle', 'release') THEN 1 ELSE 0 END) > 0 LIMIT 20
"""


def usage_query(by: Sequence[str]) -> str:
    """Give the query for usage grouped by these names of `GROUPS`, the most expensive group first."""
    columns = [GROUPS[name] for name in by]
    shown = "".join(f"{column}, " for column in columns)
    grouping = f"GROUP BY {', '.join(columns)}" if columns else ""
    sums = ", ".join(
        f"CAST(coalesce(sum({column}), 0) AS BIGINT)"
        for column in (
            *("spent_micro", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cache_write_tokens"),
            "CASE WHEN evidence = 'reported' THEN spent_micro ELSE 0 END",
        )
    )
    return (
        f"SELECT {shown}count(*), {sums} FROM tidegate_postings "  # noqa: S608  columns out of `GROUPS`
        f"WHERE kind = 'settle' AND at >= $1 AND at < $2 AND ($3 = '' OR tenant = $3) {grouping} "
        f"ORDER BY {len(columns) + 2} DESC{''.join(f', {column}' for column in columns)}"
    )


def balance_of(row: Row) -> Balance:
    return Balance(TenantId(str(row[0])), *(_whole(cell) for cell in row[1:]))


def settled_call_of(row: Row) -> SettledCall:
    return SettledCall(
        operation_id=OperationId(str(row[0])),
        attempt=_whole(row[1]),
        tenant=TenantId(str(row[2])),
        amount_micro=_whole(row[3]),
        at=float(row[4] or 0.0),
        evidence=Evidence(str(row[5])),
        price_version=_text(row[6]),
        usage=Usage(*(_whole(cell) for cell in row[7:12])),
        dimensions=Dimensions(*(_text(cell) for cell in row[12:18])),
        upstream_request_id=_text(row[18]),
    )


def usage_row_of(row: Row, groups: int) -> UsageRow:
    calls, amount, *tokens, reported = (_whole(cell) for cell in row[groups:])
    usage = Usage(*tokens)
    return UsageRow(tuple(_text(cell) for cell in row[:groups]), calls, amount, usage, reported)


def _whole(cell: Cell) -> int:
    return int(cell or 0)


def _text(cell: Cell) -> str:
    return str(cell or "")
