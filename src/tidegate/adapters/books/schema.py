"""The tables of the books, in SQL that SQLite and PostgreSQL both read but for what is spelled out for each.

One row is one posting: four amounts, one for each account of its tenant, and the database itself refuses a row whose four do not sum to
zero, a second row of the same operation, attempt and kind, and every change or removal of a row. `tidegate_lines` shows the same rows as
lines of named accounts.
"""

from __future__ import annotations

from typing import Final

from tidegate.domain.books import Credit, Hold, Settle
from tidegate.policy.billing.posting import Posting

VERSION: Final = 1

Cell = str | int | float | None

COLUMNS: Final = (
    *("operation_id", "attempt", "kind", "tenant", "at", "posted_at"),
    *("credit_micro", "balance_micro", "holds_micro", "spent_micro"),
    *("expires_at", "note"),
    *("evidence", "price_version", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cache_write_tokens"),
    *("key_id", "user_id", "feature", "model", "route", "upstream", "upstream_request_id"),
)

_NO_CALL: Final[tuple[Cell, ...]] = (None,) * 14
"""The columns from `evidence` on, which only settlements have."""

_TABLES: Final = """
CREATE TABLE tidegate_books (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    schema_version INTEGER NOT NULL
){strict};
CREATE TABLE tidegate_postings (
    posting_id {serial},
    operation_id TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    kind TEXT NOT NULL CHECK (kind IN ('credit', 'hold', 'settle', 'release', 'expiry')),
    tenant TEXT NOT NULL,
    at {real} NOT NULL,
    posted_at {real} NOT NULL,
    credit_micro {integer} NOT NULL CHECK (credit_micro = 0 OR kind = 'credit'),
    balance_micro {integer} NOT NULL,
    holds_micro {integer} NOT NULL,
    spent_micro {integer} NOT NULL CHECK (spent_micro = 0 OR kind = 'settle' AND spent_micro > 0),
    expires_at {real} CHECK (expires_at IS NOT NULL OR kind <> 'hold'),
    note TEXT,
    evidence TEXT CHECK (evidence IS NOT NULL OR kind <> 'settle'),
    price_version TEXT,
    prompt_tokens {integer},
    completion_tokens {integer},
    cached_tokens {integer},
    reasoning_tokens {integer},
    cache_write_tokens {integer},
    key_id TEXT,
    user_id TEXT,
    feature TEXT,
    model TEXT,
    route TEXT,
    upstream TEXT,
    upstream_request_id TEXT,
    UNIQUE (operation_id, attempt, kind, tenant),
    CHECK (credit_micro + balance_micro + holds_micro + spent_micro = 0)
){strict};
CREATE INDEX tidegate_holds ON tidegate_postings (expires_at, posting_id) WHERE kind = 'hold';
CREATE INDEX tidegate_settlements ON tidegate_postings (at) WHERE kind = 'settle';
CREATE VIEW tidegate_lines AS
    SELECT posting_id, 'credit:' || tenant AS account, credit_micro AS amount_micro FROM tidegate_postings WHERE credit_micro <> 0
    UNION ALL SELECT posting_id, 'balance:' || tenant, balance_micro FROM tidegate_postings WHERE balance_micro <> 0
    UNION ALL SELECT posting_id, 'holds:' || tenant, holds_micro FROM tidegate_postings WHERE holds_micro <> 0
    UNION ALL SELECT posting_id, 'spent:' || tenant, spent_micro FROM tidegate_postings WHERE spent_micro <> 0;
"""

_SQLITE_TRIGGERS: Final = """
CREATE TRIGGER tidegate_no_update BEFORE UPDATE ON tidegate_postings BEGIN
    SELECT RAISE(ABORT, 'a posting is never changed: post another');
END;
CREATE TRIGGER tidegate_no_delete BEFORE DELETE ON tidegate_postings BEGIN
    SELECT RAISE(ABORT, 'a posting is never removed: post another');
END;
CREATE TRIGGER tidegate_no_replace BEFORE INSERT ON tidegate_postings WHEN EXISTS (
    SELECT 1 FROM tidegate_postings WHERE posting_id = NEW.posting_id
    UNION ALL SELECT 1 FROM tidegate_postings
        WHERE operation_id = NEW.operation_id AND attempt = NEW.attempt AND kind = NEW.kind AND tenant = NEW.tenant
) BEGIN
    SELECT RAISE(ABORT, 'a posting is never replaced: this one exists');
END;
"""
"""REPLACE removes a row without asking the trigger for removals, so it has its own."""

_POSTGRES_TRIGGERS: Final = """
CREATE FUNCTION tidegate_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a posting is never changed or removed: post another';
END $$;
CREATE TRIGGER tidegate_no_change BEFORE UPDATE OR DELETE ON tidegate_postings FOR EACH ROW EXECUTE FUNCTION tidegate_refuse();
CREATE TRIGGER tidegate_no_truncate BEFORE TRUNCATE ON tidegate_postings FOR EACH STATEMENT EXECUTE FUNCTION tidegate_refuse();
"""

_SQLITE_WORDS: Final = {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "integer": "INTEGER", "real": "REAL", "strict": " STRICT"}
_POSTGRES_WORDS: Final = {
    "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "integer": "BIGINT",
    "real": "DOUBLE PRECISION",
    "strict": "",
}

SQLITE: Final = _TABLES.format_map(_SQLITE_WORDS) + _SQLITE_TRIGGERS
POSTGRES: Final = _TABLES.format_map(_POSTGRES_WORDS) + _POSTGRES_TRIGGERS


def row_of(posting: Posting, *, posted_at: float) -> tuple[Cell, ...]:
    """Give a posting's cells in the order of `COLUMNS`."""
    entry = posting.entry
    expires_at = entry.expires_at if isinstance(entry, Hold) else None
    note = entry.note if isinstance(entry, Credit) else None
    call = _call_cells(entry) if isinstance(entry, Settle) else _NO_CALL
    return (
        *(entry.operation_id, entry.attempt, posting.kind.value, entry.tenant, entry.at, posted_at),
        *(posting.credit_micro, posting.balance_micro, posting.holds_micro, posting.spent_micro),
        *(expires_at, note),
        *call,
    )


def _call_cells(entry: Settle) -> tuple[Cell, ...]:
    usage, by = entry.usage, entry.dimensions
    return (
        *(entry.evidence.value, entry.price_version),
        *(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens, usage.cache_write_tokens),
        *(by.key, by.user, by.feature, by.model, by.route, by.upstream, entry.upstream_request_id),
    )
