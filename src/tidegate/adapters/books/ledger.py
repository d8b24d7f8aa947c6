"""The books as their owner sees them: enter, expire, ask, check. Which database keeps them is `Database`'s business.

Invariants: what `post` has returned for is committed and survives a power cut; one process writes at a time, so that each posting is made
knowing all before it; a batch is committed whole or not at all. Every method waits for the database: call them from a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from tidegate.adapters.books import queries
from tidegate.adapters.books.queries import Row
from tidegate.adapters.books.schema import Cell, row_of
from tidegate.domain.books import Balance, Entry, Invariant, OperationId, SettledCall, UsageRow
from tidegate.domain.units import TenantId
from tidegate.errors import InternalError, InvalidParameter
from tidegate.policy.billing.posting import OperationState, Posting, PostingKind, expiry_of, posting_of

PAGE = 2_000
"""Settled calls read at a time."""


class BooksUnavailable(InternalError):
    """The database cannot be used at this moment; nothing of the batch was entered."""


class EntryRefused(InternalError):
    """The database takes no such row, now or later; nothing of the batch was entered."""


class Database(Protocol):
    """What keeps the rows. Raises only `BooksUnavailable` and `EntryRefused`."""

    def writing(self) -> AbstractContextManager[None]:
        """Be the only writer until the end, which commits; an exception leaves nothing."""

    def reading(self) -> AbstractContextManager[None]:
        """See one state of the books until the end."""

    def insert(self, rows: Sequence[tuple[Cell, ...]]) -> None: ...

    def rows(self, query: str, *parameters: Cell) -> list[Row]: ...

    def rows_of(self, operations: Sequence[OperationId]) -> list[Row]:
        """Give every posting of these operations, as `queries.STATE_COLUMNS`."""

    def close(self) -> None: ...


class Posted(msgspec.Struct, frozen=True, gc=False):
    """What became of a batch. The two sum to its entries."""

    posted: int
    unchanged: int
    """Entered before, or without any effect: a hold that came after the end of its operation."""


class Sweep(msgspec.Struct, frozen=True, gc=False):
    """How far a sweep has come in the index of holds, and what its last step did."""

    expires_at: float = 0.0
    posting_id: int = 0
    looked: int = 0
    released: int = 0


_States = dict[tuple[str, str], OperationState]


class Books:
    """One connection to the books; for one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"Books({self._database!r})"

    # ── writing ───────────────────────────────────────────────────────────────

    def post(self, entries: Sequence[Entry], *, now: float) -> Posted:
        """Enter all of them in one transaction, in this order. `now` is seconds since the epoch."""
        with self._database.writing():
            states = self._states({entry.operation_id for entry in entries})
            postings: list[Posting] = []
            for entry in entries:
                posting = posting_of(entry, _state_of(states, entry.operation_id, entry.tenant), now=now)
                if posting is not None:
                    postings.append(posting)
            self._insert(postings, now)
        return Posted(len(postings), len(entries) - len(postings))

    def expire(self, before: Sweep, *, now: float, limit: int) -> Sweep:
        """Release what is held past its time among the next `limit` holds. Fewer than that looked at: all were seen.

        A hold that is past its time when it comes is never posted, so none appears behind a sweep's place while the clock goes forward.
        """
        with self._database.writing():
            found = self._database.rows(queries.EXPIRED, before.expires_at, before.posting_id, now, limit)
            states = self._states({OperationId(str(row[2])) for row in found})
            postings: list[Posting] = []
            for row in found:
                operation, tenant = OperationId(str(row[2])), TenantId(str(row[3]))
                posting = expiry_of(operation, tenant, _state_of(states, operation, tenant), now=now)
                if posting is not None:
                    postings.append(posting)
            self._insert(postings, now)
        if not found:
            return Sweep(before.expires_at, before.posting_id)
        return Sweep(float(found[-1][0] or 0.0), int(found[-1][1] or 0), len(found), len(postings))

    def _insert(self, postings: Sequence[Posting], now: float) -> None:
        if postings:
            self._database.insert([row_of(posting, posted_at=now) for posting in postings])

    def _states(self, operations: set[OperationId]) -> _States:
        states: _States = {}
        for operation, tenant, kind, attempt, holds, expires_at in self._database.rows_of(list(operations)):
            at = None if expires_at is None else float(expires_at)
            _state_of(states, str(operation), str(tenant)).note(PostingKind(str(kind)), int(attempt or 0), int(holds or 0), at)
        return states

    # ── reading ───────────────────────────────────────────────────────────────

    def balances(self) -> list[Balance]:
        """Give where every tenant stands, by name."""
        return [queries.balance_of(row) for row in self._database.rows(queries.BALANCES)]

    def usage(self, by: Sequence[str], *, since: float, until: float, tenant: str = "") -> list[UsageRow]:
        """Sum what was settled in a span (seconds since the epoch), grouped by names of `queries.GROUPS`, the most expensive first."""
        unknown = [name for name in by if name not in queries.GROUPS]
        if unknown:
            raise InvalidParameter(f"Usage cannot be grouped by {unknown[0]!r}; it can by {', '.join(queries.GROUPS)}.", param="by")
        rows = self._database.rows(queries.usage_query(by), since, until, tenant)
        return [row for row in (queries.usage_row_of(row, len(by)) for row in rows) if row.calls]

    def settled_calls(self, *, since: float, until: float, tenant: str = "", upstream: str = "") -> Iterator[SettledCall]:
        """Give what was settled in a span, in the order of posting, a page at a time: a month need not fit in memory."""
        after = 0
        while True:
            rows = self._database.rows(queries.SETTLED, since, until, tenant, upstream, after, PAGE)
            yield from (queries.settled_call_of(row[1:]) for row in rows)
            if len(rows) < PAGE:
                return
            after = int(rows[-1][0] or 0)

    def verify(self) -> Invariant:
        """Check the whole books; long for long books, and in nobody's way."""
        with self._database.reading():
            balances = tuple(self.balances())
            [(postings,)] = self._database.rows(queries.POSTINGS)
            [(open_holds,)] = self._database.rows(queries.OPEN_HOLDS)
            faults = [f"the accounts of tenant {each.tenant} do not add up" for each in balances if not each.is_sound]
            for query, what in (
                (queries.UNEVEN, "has a posting whose lines do not sum to zero"),
                (queries.TWICE, "was posted twice"),
                (queries.WRONGLY_HELD, "holds money after its end, or less than nothing"),
            ):
                faults += [f"operation {operation} {what}" for (operation,) in self._database.rows(query)]
        return Invariant(balances, int(postings or 0), int(open_holds or 0), tuple(faults))

    def close(self) -> None:
        self._database.close()


def _state_of(states: _States, operation: str, tenant: str) -> OperationState:
    state = states.get((operation, tenant))
    if state is None:
        state = states[operation, tenant] = OperationState()
    return state
